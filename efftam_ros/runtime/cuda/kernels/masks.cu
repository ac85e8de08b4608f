// Mask of an image from the decoder's mask logits; same result as runtime/preprocess.py.

// Affine map from image pixels to the logits of a view. Same fields as MASK_VIEW in kernel_table.py.
struct MaskView {
    int width, height;      // image px
    int low;                // logits per axis
    int x0, y0, x1, y1;     // image pixels that the view shows: columns x0..x1-1, rows y0..y1-1
    float start_x, start_y; // the centre of pixel (x0, y0), counted in logits from the first logit's centre
    float cells_x, cells_y; // logits per image px
};

// Index of the sample below a position, and the fraction towards the next; clamped at both ends.
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
