// SPDX-License-Identifier: Apache-2.0

// Implements matrix products, fully connected layers and layer normalisation.
#include <cmath>

#include "kernels/buffer_checks.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::oracle {
namespace {

constexpr double kNormEpsilon = 1e-5;
const double kSqrtTwoOverPi = std::sqrt(2.0 / M_PI);
constexpr double kGeluCubic = 0.044715;

double Activated(double x, kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone:
      return x;
    case kernels::Activation::kRelu:
      return x > 0.0 ? x : 0.0;
    case kernels::Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x)));
  }
  return x;
}

double ActivationSlope(double x, kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone:
      return 1.0;
    case kernels::Activation::kRelu:
      return x > 0.0 ? 1.0 : 0.0;
    case kernels::Activation::kGeluTanh: {
      const double t = std::tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x));
      const double inner_slope = kSqrtTwoOverPi * (1.0 + 3.0 * kGeluCubic * x * x);
      return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope;
    }
  }
  return 1.0;
}

// Computes the place in memory of the weight from input i to output o.
class WeightPlace {
 public:
  WeightPlace(kernels::WeightOrder order, int64_t in, int64_t out)
      : per_out_(order == kernels::WeightOrder::kOutIn ? in : 1),
        per_in_(order == kernels::WeightOrder::kOutIn ? 1 : out) {}
  int64_t operator()(int64_t o, int64_t i) const { return o * per_out_ + i * per_in_; }

 private:
  const int64_t per_out_, per_in_;
};

void Store(double* destination, double value, kernels::Accumulate accumulate) {
  *destination = accumulate == kernels::Accumulate::kAdd ? *destination + value : value;
}

}  // namespace

void OracleDevice::Activate(kernels::Buf y, kernels::Buf x, kernels::Activation activation) {
  kernels::CheckBuf(x, kernels::DType::kF64, x.num_elements);
  kernels::CheckBuf(y, kernels::DType::kF64, x.num_elements);
  for (int64_t i = 0; i < x.num_elements; ++i) {
    y.as<double>()[i] = Activated(x.as<double>()[i], activation);
  }
}

void OracleDevice::MatMul(const kernels::MatMulShape& s, kernels::Buf c, kernels::Buf a,
                          kernels::Buf b, kernels::Accumulate accumulate) {
  const int64_t lda = s.lda != 0 ? s.lda : (s.transpose_a ? s.m : s.k);
  const int64_t ldb = s.ldb != 0 ? s.ldb : (s.transpose_b ? s.k : s.n);
  const int64_t ldc = s.ldc != 0 ? s.ldc : s.n;
  kernels::CheckMatMul(s, c, a, b, kernels::DType::kF64);
  for (int64_t i = 0; i < s.batch; ++i) {
    const double* ai = a.as<double>() + i * s.stride_a;
    const double* bi = b.as<double>() + i * s.stride_b;
    double* ci = c.as<double>() + i * s.stride_c;
    for (int64_t row = 0; row < s.m; ++row) {
      for (int64_t column = 0; column < s.n; ++column) {
        double sum = 0.0;
        for (int64_t k = 0; k < s.k; ++k) {
          sum += (s.transpose_a ? ai[k * lda + row] : ai[row * lda + k]) *
                 (s.transpose_b ? bi[column * ldb + k] : bi[k * ldb + column]);
        }
        Store(&ci[row * ldc + column], s.alpha * sum, accumulate);
      }
    }
  }
}

void OracleDevice::LinearForward(kernels::Buf y, kernels::Buf pre_activation, kernels::Buf x,
                                 kernels::Buf w, kernels::Buf bias, int64_t rows, int64_t in,
                                 int64_t out, kernels::Activation activation,
                                 kernels::WeightOrder order) {
  const WeightPlace place(order, in, out);
  kernels::CheckBuf(y, kernels::DType::kF64, rows * out);
  kernels::CheckOptionalBuf(pre_activation, kernels::DType::kF64, rows * out);
  kernels::CheckBuf(x, kernels::DType::kF64, rows * in);
  kernels::CheckBuf(w, kernels::DType::kF64, out * in);
  kernels::CheckOptionalBuf(bias, kernels::DType::kF64, out);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias ? bias.as<double>()[o] : 0.0;
      for (int64_t i = 0; i < in; ++i) {
        sum += x.as<double>()[row * in + i] * w.as<double>()[place(o, i)];
      }
      if (pre_activation && activation != kernels::Activation::kNone) {
        pre_activation.as<double>()[row * out + o] = sum;
      }
      y.as<double>()[row * out + o] = Activated(sum, activation);
    }
  }
}

void OracleDevice::LinearBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db,
                                  kernels::Buf dy, kernels::Buf pre_activation, kernels::Buf x,
                                  kernels::Buf w, int64_t rows, int64_t in, int64_t out,
                                  kernels::Activation activation, kernels::WeightOrder order,
                                  kernels::Accumulate weights) {
  const WeightPlace place(order, in, out);
  kernels::CheckOptionalBuf(dx, kernels::DType::kF64, rows * in);
  kernels::CheckBuf(dw, kernels::DType::kF64, out * in);
  kernels::CheckOptionalBuf(db, kernels::DType::kF64, out);
  kernels::CheckBuf(dy, kernels::DType::kF64, rows * out);
  kernels::CheckBuf(x, kernels::DType::kF64, rows * in);
  kernels::CheckBuf(w, kernels::DType::kF64, out * in);
  double* g = dy.as<double>();
  if (activation != kernels::Activation::kNone) {
    kernels::CheckBuf(pre_activation, kernels::DType::kF64, rows * out);
    for (int64_t i = 0; i < rows * out; ++i) {
      g[i] *= ActivationSlope(pre_activation.as<double>()[i], activation);
    }
  }
  for (int64_t o = 0; o < out; ++o) {
    double bias_sum = 0.0;
    for (int64_t row = 0; row < rows; ++row) bias_sum += g[row * out + o];
    if (db) Store(&db.as<double>()[o], bias_sum, weights);
    for (int64_t i = 0; i < in; ++i) {
      double sum = 0.0;
      for (int64_t row = 0; row < rows; ++row)
        sum += g[row * out + o] * x.as<double>()[row * in + i];
      Store(&dw.as<double>()[place(o, i)], sum, weights);
    }
  }
  if (!dx) return;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < in; ++i) {
      double sum = 0.0;
      for (int64_t o = 0; o < out; ++o) sum += g[row * out + o] * w.as<double>()[place(o, i)];
      dx.as<double>()[row * in + i] = sum;
    }
  }
}

void OracleDevice::LinearBackwardInput(kernels::Buf dx, kernels::Buf db, kernels::Buf dy,
                                       kernels::Buf pre_activation, kernels::Buf w, int64_t rows,
                                       int64_t in, int64_t out, kernels::Activation activation,
                                       kernels::WeightOrder order, kernels::Accumulate weights) {
  const WeightPlace place(order, in, out);
  LODESTAR_CHECK(activation != kernels::Activation::kNone);
  for (const kernels::Buf& buf : {dx, pre_activation})
    kernels::CheckBuf(buf, kernels::DType::kF64, rows * in);
  kernels::CheckOptionalBuf(db, kernels::DType::kF64, in);
  kernels::CheckBuf(dy, kernels::DType::kF64, rows * out);
  kernels::CheckBuf(w, kernels::DType::kF64, out * in);
  for (int64_t i = 0; i < in; ++i) {
    double bias_sum = 0.0;
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0.0;
      for (int64_t o = 0; o < out; ++o) {
        sum += dy.as<double>()[row * out + o] * w.as<double>()[place(o, i)];
      }
      const double slope = ActivationSlope(pre_activation.as<double>()[row * in + i], activation);
      dx.as<double>()[row * in + i] = sum * slope;
      bias_sum += sum * slope;
    }
    if (db) Store(&db.as<double>()[i], bias_sum, weights);
  }
}

void OracleDevice::ResidualNormForward(kernels::Buf y, kernels::Buf sum, kernels::Buf mean,
                                       kernels::Buf rstd, kernels::Buf a, kernels::Buf b,
                                       kernels::Buf gamma, kernels::Buf beta, int64_t rows,
                                       int64_t width) {
  for (const kernels::Buf& buf : {y, sum, a})
    kernels::CheckBuf(buf, kernels::DType::kF64, rows * width);
  for (const kernels::Buf& buf : {gamma, beta}) kernels::CheckBuf(buf, kernels::DType::kF64, width);
  for (const kernels::Buf& buf : {mean, rstd}) kernels::CheckBuf(buf, kernels::DType::kF64, rows);
  kernels::CheckOptionalBuf(b, kernels::DType::kF64, rows * width);
  for (int64_t row = 0; row < rows; ++row) {
    double* s = sum.as<double>() + row * width;
    double total = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      s[i] = a.as<double>()[row * width + i] + (b ? b.as<double>()[row * width + i] : 0.0);
      total += s[i];
    }
    const double row_mean = total / static_cast<double>(width);
    double variance = 0.0;
    for (int64_t i = 0; i < width; ++i) variance += (s[i] - row_mean) * (s[i] - row_mean);
    variance /= static_cast<double>(width);
    const double row_rstd = 1.0 / std::sqrt(variance + kNormEpsilon);
    mean.as<double>()[row] = row_mean;
    rstd.as<double>()[row] = row_rstd;
    for (int64_t i = 0; i < width; ++i) {
      y.as<double>()[row * width + i] =
          (s[i] - row_mean) * row_rstd * gamma.as<double>()[i] + beta.as<double>()[i];
    }
  }
}

void OracleDevice::NormBackward(kernels::Buf dx, kernels::Buf dgamma, kernels::Buf dbeta,
                                kernels::Buf dy, kernels::Buf sum, kernels::Buf mean,
                                kernels::Buf rstd, kernels::Buf gamma, int64_t rows, int64_t width,
                                kernels::Accumulate input, kernels::Accumulate weights) {
  for (const kernels::Buf& buf : {dx, dy, sum})
    kernels::CheckBuf(buf, kernels::DType::kF64, rows * width);
  for (const kernels::Buf& buf : {dgamma, dbeta, gamma})
    kernels::CheckBuf(buf, kernels::DType::kF64, width);
  for (const kernels::Buf& buf : {mean, rstd}) kernels::CheckBuf(buf, kernels::DType::kF64, rows);
  const double* g = dy.as<double>();
  const auto normalised = [&](int64_t row, int64_t i) {
    return (sum.as<double>()[row * width + i] - mean.as<double>()[row]) * rstd.as<double>()[row];
  };
  for (int64_t i = 0; i < width; ++i) {
    double gamma_sum = 0.0;
    double beta_sum = 0.0;
    for (int64_t row = 0; row < rows; ++row) {
      gamma_sum += g[row * width + i] * normalised(row, i);
      beta_sum += g[row * width + i];
    }
    Store(&dgamma.as<double>()[i], gamma_sum, weights);
    Store(&dbeta.as<double>()[i], beta_sum, weights);
  }
  for (int64_t row = 0; row < rows; ++row) {
    double mean_g = 0.0;   // mean of dy * gamma
    double mean_gx = 0.0;  // mean of dy * gamma * normalised x
    for (int64_t i = 0; i < width; ++i) {
      const double scaled = g[row * width + i] * gamma.as<double>()[i];
      mean_g += scaled / static_cast<double>(width);
      mean_gx += scaled * normalised(row, i) / static_cast<double>(width);
    }
    for (int64_t i = 0; i < width; ++i) {
      const double scaled = g[row * width + i] * gamma.as<double>()[i];
      const double value =
          rstd.as<double>()[row] * (scaled - mean_g - normalised(row, i) * mean_gx);
      Store(&dx.as<double>()[row * width + i], value, input);
    }
  }
}

}  // namespace lodestar::oracle
