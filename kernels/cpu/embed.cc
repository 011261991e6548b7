// Embedding tables, and the loss.
#include <algorithm>

#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar {

void CpuDevice::EmbedForward(Buf y, Buf tokens, Buf token_table, Buf position_table, int64_t rows,
                             int64_t context_tokens, int64_t width) {
  CheckBuf(y, DType::kF32, rows * width);
  CheckBuf(tokens, DType::kI32, rows);
  CheckBuf(position_table, DType::kF32, context_tokens * width);
  CheckBuf(token_table, DType::kF32, 0);
  const int64_t vocabulary = token_table.num_elements / width;
  ForRanges(rows, 1, rows * width, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = tokens.as<int32_t>()[row];
      LODESTAR_CHECK(token >= 0 && token < vocabulary) << "token=" << token;
      loops_.add(y.as<float>() + row * width, token_table.as<float>() + token * width,
                 position_table.as<float>() + row % context_tokens * width, width);
    }
  });
}

// Each range owns columns of both tables and adds all rows in order.
void CpuDevice::EmbedBackward(Buf dtoken_table, Buf dposition_table, Buf dy, Buf tokens,
                              int64_t rows, int64_t context_tokens, int64_t width,
                              int64_t vocabulary) {
  CheckBuf(dtoken_table, DType::kF32, vocabulary * width);
  CheckBuf(dposition_table, DType::kF32, context_tokens * width);
  CheckBuf(dy, DType::kF32, rows * width);
  CheckBuf(tokens, DType::kI32, rows);
  ForRanges(width, 16, 2 * rows * width, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t token = tokens.as<int32_t>()[row];
      LODESTAR_CHECK(token >= 0 && token < vocabulary) << "token=" << token;
      const float* g = dy.as<float>() + row * width + begin;
      float* to_token = dtoken_table.as<float>() + token * width + begin;
      float* to_position = dposition_table.as<float>() + row % context_tokens * width + begin;
      loops_.add(to_token, to_token, g, end - begin);
      loops_.add(to_position, to_position, g, end - begin);
    }
  });
}

void CpuDevice::SoftmaxCrossEntropy(Buf losses, Buf correct, Buf logits, Buf targets, int64_t rows,
                                    int64_t classes, int64_t row_stride, double scale) {
  LODESTAR_CHECK(row_stride >= classes);
  CheckBuf(losses, DType::kF32, rows);
  CheckOptionalBuf(correct, DType::kI32, rows);
  CheckBuf(logits, DType::kF32, rows * row_stride);
  CheckBuf(targets, DType::kI32, rows);
  ForRanges(rows, 1, 2 * rows * classes, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = begin; row < end; ++row) {
      const int32_t target = targets.as<int32_t>()[row];
      LODESTAR_CHECK(target >= 0 && target < classes) << "target=" << target;
      int32_t hit = 0;
      float* x = logits.as<float>() + row * row_stride;
      losses.as<float>()[row] =
          loops_.cross_entropy(x, target, classes, static_cast<float>(scale), &hit);
      if (scale != 0.0) std::fill(x + classes, x + row_stride, 0.0f);
      if (correct) correct.as<int32_t>()[row] = hit;
    }
  });
}

}  // namespace lodestar
