// Kernels of the memory of earlier frames, which is stored in slots. They copy slots to the inputs of the
// memory attention, copy the chosen candidate to the inputs of the memory encoder, and store the encoder's
// outputs in a slot. Each thread writes one number.

// Copies slots of the memory to the inputs of the graph memory_attention_fixed (docs/bundle.md). Consecutive
// threads write maps[rows, tokens, channels], then pointers[pointer_slots, pointer_channels], then
// key_bias[keys]. plan[rows + pointer_slots] has the slot for each temporal row, then for each pointer. For
// the slot -1 zeros are written, and a key bias by which the attention ignores the keys.
extern "C" __global__ void gather_memory(const int *__restrict__ plan, const float *__restrict__ ring_maps,
                                         const float *__restrict__ ring_pointers, float *__restrict__ maps,
                                         float *__restrict__ pointers, float *__restrict__ key_bias, int rows,
                                         int tokens, int channels, int pointer_slots, int pointer_channels,
                                         int pointer_tokens, int pooled) {
    const float unused_key = -1e4f;
    int index = blockIdx.x * blockDim.x + threadIdx.x;

    const int map_size = tokens * channels;
    if (index < rows * map_size) {
        const int row = index / map_size, slot = plan[row];
        maps[index] = slot < 0 ? 0.0f : ring_maps[(long long)slot * map_size + (index - row * map_size)];
        return;
    }
    index -= rows * map_size;

    if (index < pointer_slots * pointer_channels) {
        const int place = index / pointer_channels, slot = plan[rows + place];
        const int channel = index - place * pointer_channels;
        pointers[index] = slot < 0 ? 0.0f : ring_pointers[slot * pointer_channels + channel];
        return;
    }
    index -= pointer_slots * pointer_channels;

    const int head = pooled ? tokens : 0, keys_per_map = pooled ? tokens / 4 : tokens;
    const int map_keys = rows * keys_per_map;
    if (index >= head + map_keys + pointer_slots * pointer_tokens) {
        return;
    }
    bool used;
    if (index >= head + map_keys) {
        used = plan[rows + (index - head - map_keys) / pointer_tokens] >= 0;
    } else {
        int used_rows = 0;
        for (int row = 0; row < rows; ++row) {
            used_rows += plan[row] >= 0;
        }
        // A network with pooled keys uses the unpooled keys if there is one map, and the pooled keys if there
        // are several.
        const bool attends_pooled = used_rows > 1;
        if (index < head) {
            used = !attends_pooled;
        } else {
            used = plan[(index - head) / keys_per_map] >= 0 && (attends_pooled || !pooled);
        }
    }
    key_bias[index] = used ? 0.0f : unused_key;
}

// Copies the chosen candidate to the inputs of the memory encoder. decision[4] has the candidate's row 0..3 in
// the decoder's output, the slot, present (0 or 1) and binarize (0 or 1). Consecutive threads write
// mask_logits[cells] and pointer[channels] of the candidate, then present[1] and binarize[1] as floats.
extern "C" __global__ void choose_candidate(const int *__restrict__ decision,
                                            const float *__restrict__ logits,
                                            const float *__restrict__ pointers,
                                            float *__restrict__ mask_logits, float *__restrict__ pointer,
                                            float *__restrict__ present, float *__restrict__ binarize,
                                            int cells, int channels) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x, row = decision[0];
    if (index < cells) {
        mask_logits[index] = logits[row * cells + index];
    } else if (index < cells + channels) {
        pointer[index - cells] = pointers[row * channels + (index - cells)];
    } else if (index == cells + channels) {
        *present = decision[2];
    } else if (index == cells + channels + 1) {
        *binarize = decision[3];
    }
}

// Rounds to the nearest bfloat16, ties to even, with the same result as frame_state.round_bfloat16. NaN needs
// another computation, because the addition for rounding could turn it into an infinity or zero.
__device__ __forceinline__ float nearest_bfloat16(float value) {
    unsigned bits = __float_as_uint(value);
    const bool has_finite_exponent = (bits & 0x7F800000u) != 0x7F800000u;
    if (has_finite_exponent) {
        bits += 0x7FFFu + (bits >> 16 & 1u);
    } else if (bits & 0x007FFFFFu) {
        bits |= 0x10000u;
    }
    return __uint_as_float(bits & 0xFFFF0000u);
}

// Stores the memory encoder's map and pointer in slot decision[1] of the memory. Consecutive threads write the
// map, then the pointer. If rounds is 1, the map is rounded to bfloat16. For a negative slot nothing is stored.
extern "C" __global__ void store_memory(const int *__restrict__ decision, const float *__restrict__ map,
                                        const float *__restrict__ pointer, float *__restrict__ ring_maps,
                                        float *__restrict__ ring_pointers, int map_size, int channels,
                                        int rounds) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x, slot = decision[1];
    if (slot < 0) {
        return;
    }
    if (index < map_size) {
        ring_maps[(long long)slot * map_size + index] = rounds ? nearest_bfloat16(map[index]) : map[index];
    } else if (index < map_size + channels) {
        ring_pointers[slot * channels + (index - map_size)] = pointer[index - map_size];
    }
}
