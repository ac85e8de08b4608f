// Likeness to the selected target: the encoder's features, sampled on a grid over a box, against those of a
// template. One thread per element written. A sample's place is in cells; beyond the outer cells' centres the
// features of the outer cells go on.

#define SAMPLES 4 // of a box, along each of its sides

struct Place {
    int cell, right, below; // first of four cells, and the steps to its neighbours
    float x, y;             // weights of the neighbours
};

// The place of sample 0..SAMPLES^2-1, row by row, of box[4] (left, top, right, bottom in network px).
__device__ __forceinline__ Place place_of(const float *__restrict__ box, int sample, int grid, int stride) {
    const float across = (sample % SAMPLES + 0.5f) / SAMPLES, down = (sample / SAMPLES + 0.5f) / SAMPLES;
    const float last = grid - 1.0f;
    float x = (box[0] + across * (box[2] - box[0])) / stride - 0.5f;
    float y = (box[1] + down * (box[3] - box[1])) / stride - 0.5f;
    // An empty mask has no box: its NaN becomes 0 here, and its likeness is not used.
    x = fminf(fmaxf(x, 0.0f), last);
    y = fminf(fmaxf(y, 0.0f), last);
    const int column = min((int)x, grid - 2), row = min((int)y, grid - 2);
    Place place;
    place.cell = row * grid + column;
    place.right = 1;
    place.below = grid;
    place.x = x - column;
    place.y = y - row;
    return place;
}

__device__ __forceinline__ float sampled(const float *__restrict__ channel, const Place &place) {
    const float *first = channel + place.cell, *second = first + place.below;
    const float above = first[0] + place.x * (first[place.right] - first[0]);
    const float under = second[0] + place.x * (second[place.right] - second[0]);
    return above + place.y * (under - above);
}

// Keeps the features [channels, grid, grid] over a box as a template [SAMPLES^2, channels]. Element by element.
extern "C" __global__ void take_template(const float *__restrict__ box, const float *__restrict__ features,
                                         float *__restrict__ kept, int channels, int grid, int stride) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= SAMPLES * SAMPLES * channels) {
        return;
    }
    const int sample = index / channels, channel = index - sample * channels;
    const Place place = place_of(box, sample, grid, stride);
    kept[index] = sampled(features + channel * grid * grid, place);
}

// cosines[boxes, templates, SAMPLES^2] of the features over each of boxes[boxes, 4] with each of
// kept[templates, SAMPLES^2, channels], place by place.
extern "C" __global__ void likeness(const float *__restrict__ boxes, const float *__restrict__ features,
                                    const float *__restrict__ kept, float *__restrict__ cosines, int count,
                                    int templates, int channels, int grid, int stride) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x, samples = SAMPLES * SAMPLES;
    if (index >= count * templates * samples) {
        return;
    }
    const int sample = index % samples, which = index / samples % templates, box = index / (samples * templates);
    const Place place = place_of(boxes + 4 * box, sample, grid, stride);
    const float *own = kept + (which * samples + sample) * channels;
    float product = 0.0f, seen = 0.0f, known = 0.0f;
#pragma unroll 8
    for (int channel = 0; channel < channels; ++channel) {
        const float value = sampled(features + channel * grid * grid, place);
        product += value * own[channel];
        seen += value * value;
        known += own[channel] * own[channel];
    }
    cosines[index] = product / fmaxf(sqrtf(seen) * sqrtf(known), 1e-12f);
}
