// A driver library of five calls, which shows what the real cuda-bindings make of their arguments.
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace {
const int error_log = 5, error_log_bytes = 6;  // CUjit_option
const int success = 0, invalid_ptx = 218, not_found = 500;
}

extern "C" {

int cuGetProcAddress_v2(const char *name, void **function, int, unsigned long long, void *) {
    *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
    return *function ? success : not_found;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    *module = reinterpret_cast<void *>(0x1230);
    if (!strcmp(static_cast<const char *>(image), "good")) return success;
    char *log = nullptr;
    size_t room = 0;
    for (unsigned i = 0; i < count; ++i) {
        if (options[i] == error_log) log = static_cast<char *>(values[i]);
        if (options[i] == error_log_bytes) room = reinterpret_cast<size_t>(values[i]);
    }
    snprintf(log, room, "room for %zu bytes", room);
    return invalid_ptx;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = reinterpret_cast<void *>(0x4560);
    return module == reinterpret_cast<void *>(0x1230) && !strcmp(name, "kernel") ? success : not_found;
}

int cuModuleUnload(void *) { return success; }

struct Part {  // CUDA_MEMCPY2D
    size_t source_x, source_y;
    int source_kind;
    const void *source;
    unsigned long long source_device;
    void *source_array;
    size_t source_pitch, target_x, target_y;
    int target_kind;
    void *target_host;
    unsigned long long target;
    void *target_array;
    size_t target_pitch, width, height;
};

int cuMemcpy2DAsync_v2(const Part *part, void *stream) {
    printf("kind %d %p pitch %zu at %zu %zu ", part->source_kind, part->source, part->source_pitch,
           part->source_x, part->source_y);
    printf("kind %d %#llx pitch %zu at %zu %zu ", part->target_kind, part->target, part->target_pitch,
           part->target_x, part->target_y);
    printf("size %zu %zu stream %p\n", part->width, part->height, stream);
    fflush(stdout);
    return success;
}

// As cuGetProcAddress is asked for it.
int cuMemcpy2DAsync(const Part *part, void *stream) { return cuMemcpy2DAsync_v2(part, stream); }

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
    printf("%p grid %u %u %u block %u %u %u ", function, gx, gy, gz, bx, by, bz);
    printf("shared %u stream %p arguments %p %d %g extra %d\n", shared, stream,
           *static_cast<void **>(parameters[0]), *static_cast<int *>(parameters[1]),
           *static_cast<float *>(parameters[2]), extra != nullptr);
    fflush(stdout);
    return success;
}
}
