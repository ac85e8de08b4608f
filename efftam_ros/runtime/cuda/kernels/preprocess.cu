// Makes the network's input from the bytes of an image, with the same result as Preprocessor in
// runtime/preprocess.py. For each network pixel, fine x fine bilinear samples of the view are averaged and
// normalised. The output has one plane for each of red, green and blue.

// Describes one view of one image. The fields are those of PREPROCESS_PARAMS in kernel_table.py.
struct PreprocessParams {
    // Size of the image, px.
    int width, height;
    // Bytes from one stored row to the next.
    int step;
    // Encoding of the image: a value of Encoding.
    int encoding;
    // Side of the network's input, px.
    int side;
    // Samples per network px along each axis.
    int fine;
    // Position of the view's top-left corner in the image, px.
    float x, y;
    // Network px per image px.
    float scale_x, scale_y;
    // For red, green and blue: output = stored value * gain + shift.
    float gain[3], shift[3];
    // 1: the edge pixels are repeated outside the image. 0: the input is black outside the image.
    int full_view;
};

// Encodings of images. The numbers are those of kernel_code in images/pixels.py.
enum Encoding {
    BGR8 = 0,
    RGB8 = 1,
    BGRA8 = 2,
    RGBA8 = 3,
    MONO8 = 4,
    NV12 = 5,
    NV21 = 6,
    UYVY = 7,
    YUYV = 8,
    BAYER_RGGB8 = 9,
    BAYER_BGGR8 = 10,
    BAYER_GBRG8 = 11,
    BAYER_GRBG8 = 12,
};

struct Colour {
    float red, green, blue;
};

// The structs below read images of different encodings. at(x, y) returns the colour of an image pixel, 0..255;
// (x, y) must be in the image.

struct Interleaved {
    const unsigned char *pixels;
    int step, stride, red, green, blue;

    __device__ Colour at(int x, int y) const {
        const unsigned char *pixel = pixels + (long long)y * step + x * stride;
        return {(float)pixel[red], (float)pixel[green], (float)pixel[blue]};
    }
};

__device__ __forceinline__ float byte_of(int fixed_point) {
    return min(max((fixed_point + (1 << 19)) >> 20, 0), 255);
}

// Converts YUV (BT.601, limited range) to RGB. Like OpenCV it computes with 20 fractional bits and rounds to
// bytes.
__device__ __forceinline__ Colour from_yuv(int luma, int u, int v) {
    const int grey = max(luma - 16, 0) * 1220542;
    u -= 128;
    v -= 128;
    return {byte_of(grey + 1673527 * v), byte_of(grey - 852492 * v - 409993 * u),
            byte_of(grey + 2116026 * u)};
}

struct Yuv420 {
    const unsigned char *pixels;
    // u, v: index, 0 or 1, of this value in a pair of colour bytes.
    int step, height, u, v;

    __device__ Colour at(int x, int y) const {
        const unsigned char *chroma = pixels + (long long)(height + (y >> 1)) * step + (x & ~1);
        return from_yuv(pixels[(long long)y * step + x], chroma[u], chroma[v]);
    }
};

struct Yuv422 {
    const unsigned char *pixels;
    // luma, chroma: index of the first such byte in the four bytes of two pixels.
    int step, luma, chroma;

    __device__ Colour at(int x, int y) const {
        const unsigned char *group = pixels + (long long)y * step + (x >> 1) * 4;
        return from_yuv(group[luma + (x & 1) * 2], group[chroma], group[chroma + 2]);
    }
};

struct Bayer {
    const unsigned char *pixels;
    // red_x, red_y: column and row of the red pixels, modulo 2.
    int step, width, height, red_x, red_y;

    // Pixels at the border get the colour of their inner neighbours, as in OpenCV.
    __device__ Colour at(int x, int y) const {
        x = min(max(x, 1), width - 2);
        y = min(max(y, 1), height - 2);
        const unsigned char *here = pixels + (long long)y * step + x;
        const unsigned char *above = here - step, *below = here + step;
        const int sides = here[-1] + here[1], ends = above[0] + below[0];
        const float corners = (above[-1] + above[1] + below[-1] + below[1] + 2) >> 2;
        const float cross = (sides + ends + 2) >> 2;
        const float across = (sides + 1) >> 1, down = (ends + 1) >> 1;
        const float own = here[0];
        const bool red_column = (x & 1) == red_x;
        if ((y & 1) == red_y) {
            return red_column ? Colour{own, cross, corners} : Colour{across, own, down};
        }
        return red_column ? Colour{down, own, across} : Colour{corners, cross, own};
    }
};

// The indices of two neighbouring pixels of a row or column, and their weights in a sample between them.
struct Pair {
    int first, second;
    float first_weight, second_weight;
};

__device__ __forceinline__ Pair neighbours(float position, int size, bool repeat_edge) {
    // The position is limited, because converting a float beyond the range of int is undefined. This does not
    // change the result.
    position = fminf(fmaxf(position, -1.0f), (float)size);
    const float base = floorf(position);
    const int first = (int)base, last = size - 1;
    Pair pair = {min(max(first, 0), last), min(max(first + 1, 0), last), 1.0f - (position - base),
                 position - base};
    if (!repeat_edge) {
        pair.first_weight = pair.first == first ? pair.first_weight : 0.0f;
        pair.second_weight = pair.second == first + 1 ? pair.second_weight : 0.0f;
    }
    return pair;
}

__device__ __forceinline__ void add(Colour &sum, const Colour &colour, float weight) {
    sum.red += weight * colour.red;
    sum.green += weight * colour.green;
    sum.blue += weight * colour.blue;
}

template <class Reader>
__device__ __forceinline__ Colour mean_of_samples(const PreprocessParams &params, const Reader &reader, int x,
                                                  int y) {
    const int fine = params.fine;
    const bool full = params.full_view;
    const float step_x = 1.0f / (params.scale_x * fine), step_y = 1.0f / (params.scale_y * fine);
    const float first_x = x * fine + 0.5f, first_y = y * fine + 0.5f;
    Colour sum = {0.0f, 0.0f, 0.0f};
    for (int j = 0; j < fine; ++j) {
        // 0.5 is subtracted, because whole numbers are pixel centres in neighbours(), but pixel edges in the
        // view.
        const Pair rows = neighbours(fmaf(first_y + j, step_y, params.y - 0.5f), params.height, full);
        for (int i = 0; i < fine; ++i) {
            const Pair columns = neighbours(fmaf(first_x + i, step_x, params.x - 0.5f), params.width, full);
            add(sum, reader.at(columns.first, rows.first), columns.first_weight * rows.first_weight);
            add(sum, reader.at(columns.second, rows.first), columns.second_weight * rows.first_weight);
            add(sum, reader.at(columns.first, rows.second), columns.first_weight * rows.second_weight);
            add(sum, reader.at(columns.second, rows.second), columns.second_weight * rows.second_weight);
        }
    }
    const float share = 1.0f / (fine * fine);
    return {sum.red * share, sum.green * share, sum.blue * share};
}

__device__ __forceinline__ Colour network_pixel(const PreprocessParams &p, const unsigned char *pixels, int x, int y) {
    const int code = p.encoding;
    if (code <= MONO8) {
        const int stride = code == MONO8 ? 1 : code >= BGRA8 ? 4 : 3;
        const int red = code == BGR8 || code == BGRA8 ? 2 : 0;
        const int green = code == MONO8 ? 0 : 1;
        return mean_of_samples(p, Interleaved{pixels, p.step, stride, red, green, 2 * green - red}, x, y);
    }
    if (code <= NV21) {
        const int u = code == NV21;
        return mean_of_samples(p, Yuv420{pixels, p.step, p.height, u, 1 - u}, x, y);
    }
    if (code <= YUYV) {
        const int luma = code == UYVY;
        return mean_of_samples(p, Yuv422{pixels, p.step, luma, 1 - luma}, x, y);
    }
    // In an image this small no pixel has all of its neighbours. OpenCV also makes such images black.
    if (p.width < 3 || p.height < 3) {
        return {0.0f, 0.0f, 0.0f};
    }
    const int red_x = code == BAYER_BGGR8 || code == BAYER_GRBG8;
    const int red_y = code == BAYER_BGGR8 || code == BAYER_GBRG8;
    return mean_of_samples(p, Bayer{pixels, p.step, p.width, p.height, red_x, red_y}, x, y);
}

// Writes out[3, side, side]: the network's input in the order red, green, blue. Each thread (x, y) computes one
// network pixel.
extern "C" __global__ void preprocess(const PreprocessParams *__restrict__ params,
                                      const unsigned char *__restrict__ pixels, float *__restrict__ out) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const PreprocessParams p = *params;
    if (x >= p.side || y >= p.side) {
        return;
    }
    const Colour colour = network_pixel(p, pixels, x, y);
    const int plane = p.side * p.side;
    float *pixel = out + y * p.side + x;
    pixel[0] = fmaf(colour.red, p.gain[0], p.shift[0]);
    pixel[plane] = fmaf(colour.green, p.gain[1], p.shift[1]);
    pixel[2 * plane] = fmaf(colour.blue, p.gain[2], p.shift[2]);
}
