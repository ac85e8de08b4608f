// The part of CUDA C++ that the kernels use, for a C++ compiler: a launch is a loop over its grid.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline

using std::max;
using std::min;

struct dim3 {
    unsigned x, y, z;
};

static thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class... Arguments, std::size_t... Index>
void call(void (*kernel)(Arguments...), void **parameters, std::index_sequence<Index...>) {
    kernel(*static_cast<std::remove_reference_t<Arguments> *>(parameters[Index])...);
}

template <class... Arguments>
void run_grid(void (*kernel)(Arguments...), dim3 grid, dim3 block, void **parameters) {
    gridDim = grid;
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
                for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z)
                    for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
                        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x)
                            call(kernel, parameters, std::index_sequence_for<Arguments...>());
}
