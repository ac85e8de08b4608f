// Makes the mask of an image from the decoder's logits, with the same result as image_mask in
// runtime/preprocess.py.

// Affine map from image pixels to the logits of a view. The fields are those of MASK_VIEW in kernel_table.py.
struct MaskView {
    // Size of the image, px.
    int width, height;
    // Number of rows and of columns of the logits.
    int low;
    // Image pixels that the view shows: columns x0..x1-1, rows y0..y1-1.
    int x0, y0, x1, y1;
    // Position of pixel (x0, y0) in the logits. Whole numbers are the centres of logits.
    float start_x, start_y;
    // Logits per image px.
    float cells_x, cells_y;
};

// Returns the index of the last sample at or before a position, and the fraction of the way to the next one.
// The position is limited to the range of the samples, 0 to size - 1.
__device__ __forceinline__ int split(float position, int size, float *fraction) {
    position = fminf(fmaxf(position, 0.0f), size - 1.0f);
    const int below = min((int)position, max(size - 2, 0));
    *fraction = position - below;
    return below;
}

// Writes mask[height, width]: 255 where the logit, interpolated bilinearly, is above 0, and 0 elsewhere, also
// outside the view. Each thread (x, y) computes one image pixel.
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
