// From the decoder's mask logits to an image mask, boxes, areas, by the rules of runtime/masks.py.

// Where the pixels of an image lie on the logits of a view. kernel_table.py has the same fields as MASK_VIEW.
struct MaskView {
    int width, height;      // image px
    int low;                // logits per axis
    int x0, y0, x1, y1;     // image pixels that the view shows: columns x0..x1-1, rows y0..y1-1
    float start_x, start_y; // the centre of pixel (x0, y0), counted in logits from the first logit's centre
    float cells_x, cells_y; // logits per image px
};

// Position on a line of values as an index below, and the fraction towards the next; ends are held.
__device__ __forceinline__ int split(float position, int size, float *fraction) {
    position = fminf(fmaxf(position, 0.0f), size - 1.0f);
    const int below = min((int)position, max(size - 2, 0));
    *fraction = position - below;
    return below;
}

// mask[height, width]: 255 where the bilinear logit is above 0, else 0. One thread per image pixel (x, y).
extern "C" __global__ void mask_upsample(const MaskView *__restrict__ view, const float *__restrict__ logits,
                                         unsigned char *__restrict__ mask) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const MaskView v = *view;
    if (x >= v.width || y >= v.height) {
        return;
    }
    bool inside = false;
    if (x >= v.x0 && x < v.x1 && y >= v.y0 && y < v.y1) {
        float right, down;
        const int column = split(fmaf(x - v.x0, v.cells_x, v.start_x), v.low, &right);
        const int row = split(fmaf(y - v.y0, v.cells_y, v.start_y), v.low, &down);
        const float *upper = logits + row * v.low + column;
        const float *lower = v.low > 1 ? upper + v.low : upper;
        const int next = v.low > 1;
        const float top = upper[0] * (1.0f - right) + upper[next] * right;
        const float bottom = lower[0] * (1.0f - right) + lower[next] * right;
        inside = top * (1.0f - down) + bottom * down > 0.0f;
    }
    mask[(long long)y * v.width + x] = inside ? 255 : 0;
}

__device__ __forceinline__ float largest(const float *values, int count, int stride) {
    float most = values[0];
    for (int i = 1; i < count; ++i) {
        most = fmaxf(most, values[i * stride]);
    }
    return most;
}

// Where the maxima over lines of logits cross zero before line `first` and behind line `last`, the outermost
// that hold a positive logit; in edge coordinates, on the border where there is no line to cross to. Lines
// lie `along` logits apart, a line's own logits `across`.
__device__ __forceinline__ void crossings(const float *logits, int size, int along, int across, int first,
                                          int last, float *low, float *high) {
    *low = 0.0f;
    *high = size;
    if (first > 0) {
        const float inside = largest(logits + first * along, size, across);
        const float outside = largest(logits + (first - 1) * along, size, across);
        *low = first + 0.5f - inside / (inside - outside);
    }
    if (last + 1 < size) {
        const float inside = largest(logits + last * along, size, across);
        const float outside = largest(logits + (last + 1) * along, size, across);
        *high = last + 0.5f + inside / (inside - outside);
    }
}

// logits[count, low, low] -> boxes[count, 4] (left, top, right, bottom, network px), areas[count] (network
// px^2). One thread per map. A logit is 4 network px wide.
extern "C" __global__ void mask_boxes(const float *__restrict__ logits, float *__restrict__ boxes,
                                      float *__restrict__ areas, int count, int low) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) {
        return;
    }
    const float cell = 4.0f;
    const float *map = logits + (long long)index * low * low;
    int left = low, top = low, right = -1, bottom = -1, inside = 0;
    for (int y = 0; y < low; ++y) {
        for (int x = 0; x < low; ++x) {
            if (map[y * low + x] > 0.0f) {
                left = min(left, x);
                right = max(right, x);
                top = min(top, y);
                bottom = y;
                ++inside;
            }
        }
    }
    float x0 = 0.0f, x1 = 0.0f, y0 = 0.0f, y1 = 0.0f;
    if (inside > 0) {
        crossings(map, low, 1, low, left, right, &x0, &x1);
        crossings(map, low, low, 1, top, bottom, &y0, &y1);
    }
    float *box = boxes + index * 4;
    box[0] = x0 * cell;
    box[1] = y0 * cell;
    box[2] = x1 * cell;
    box[3] = y1 * cell;
    areas[index] = inside * cell * cell;
}
