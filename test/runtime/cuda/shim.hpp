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

// IEEE half, nearest, ties to even.
inline unsigned short half_bits(float value) {
    const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u;
    const float size = std::fabs(value);
    if (std::isnan(size)) {
        return 0x7FFFu; // what the GPU gives for every NaN
    }
    if (size >= 65520.0f) {
        return sign | 0x7C00u;
    }
    if (size < 6.103515625e-05f) { // subnormal: a multiple of 2^-24, which nearbyint counts out
        return sign | (unsigned)std::nearbyint(size * 16777216.0f);
    }
    const unsigned magnitude = bits & 0x7FFFFFFFu;
    return sign | ((magnitude + 0xFFFu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13);
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
