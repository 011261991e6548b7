// SPDX-License-Identifier: Apache-2.0

#include "kernels/oracle/oracle_device.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/buffer_checks.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar::oracle {

OracleDevice::OracleDevice() {
  capabilities_.name = "oracle (fp64, 1 thread)";
  capabilities_.compute = kernels::DType::kF64;
}

const kernels::DeviceCapabilities& OracleDevice::capabilities() const { return capabilities_; }

absl::StatusOr<void*> OracleDevice::Allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, bytes == 0 ? 64 : bytes) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the oracle device could not allocate ", bytes, " bytes of host memory"));
  }
  return memory;
}

void OracleDevice::Release(void* memory) { std::free(memory); }
absl::StatusOr<void*> OracleDevice::AllocateHost(size_t bytes) { return Allocate(bytes); }
void OracleDevice::ReleaseHost(void* memory) { std::free(memory); }

kernels::EventId OracleDevice::Record(kernels::StreamKind /*stream*/) { return ++num_events_; }
void OracleDevice::Wait(kernels::StreamKind /*stream*/, kernels::EventId event) {
  LODESTAR_CHECK(event <= num_events_);
}
absl::Status OracleDevice::Synchronize(kernels::EventId event) {
  LODESTAR_CHECK(event <= num_events_);
  return absl::OkStatus();
}

void OracleDevice::Copy(void* destination, const void* source, size_t bytes, kernels::StreamKind) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

void OracleDevice::Fill(kernels::Buf y, double value) {
  for (int64_t i = 0; i < y.num_elements; ++i) {
    switch (y.dtype) {
      case kernels::DType::kF64:
        y.as<double>()[i] = value;
        break;
      case kernels::DType::kI32:
        y.as<int32_t>()[i] = static_cast<int32_t>(value);
        break;
      case kernels::DType::kU8:
        y.as<uint8_t>()[i] = static_cast<uint8_t>(value);
        break;
      default:
        LODESTAR_CHECK(y.dtype == kernels::DType::kF32);
        y.as<float>()[i] = static_cast<float>(value);
    }
  }
}

void OracleDevice::Cast(kernels::Buf y, kernels::Buf x, double scale, kernels::StreamKind) {
  LODESTAR_CHECK(x.dtype == kernels::DType::kF64 || x.dtype == kernels::DType::kF32);
  LODESTAR_CHECK(y.dtype == kernels::DType::kF64 || y.dtype == kernels::DType::kF32);
  LODESTAR_CHECK(y.num_elements >= x.num_elements);
  for (int64_t i = 0; i < x.num_elements; ++i) {
    const double value =
        scale * (x.dtype == kernels::DType::kF64 ? x.as<double>()[i] : double{x.as<float>()[i]});
    if (y.dtype == kernels::DType::kF64) {
      y.as<double>()[i] = value;
    } else {
      y.as<float>()[i] = static_cast<float>(value);
    }
  }
}

void OracleDevice::AddScaled(kernels::Buf y, kernels::Buf x, double a) {
  kernels::CheckBuf(x, kernels::DType::kF64, x.num_elements);
  kernels::CheckBuf(y, kernels::DType::kF64, x.num_elements);
  for (int64_t i = 0; i < x.num_elements; ++i) y.as<double>()[i] += a * x.as<double>()[i];
}

void OracleDevice::Subtract(kernels::Buf z, kernels::Buf x, kernels::Buf y) {
  kernels::CheckBuf(x, kernels::DType::kF64, z.num_elements);
  kernels::CheckBuf(y, kernels::DType::kF64, z.num_elements);
  kernels::CheckBuf(z, kernels::DType::kF64, z.num_elements);
  for (int64_t i = 0; i < z.num_elements; ++i) {
    z.as<double>()[i] = x.as<double>()[i] - y.as<double>()[i];
  }
}

void OracleDevice::SumOfSquares(kernels::Buf sum, kernels::Buf x) {
  kernels::CheckBuf(sum, kernels::DType::kF64, 1);
  kernels::CheckBuf(x, kernels::DType::kF64, x.num_elements);
  double total = 0.0;
  for (int64_t i = 0; i < x.num_elements; ++i) total += x.as<double>()[i] * x.as<double>()[i];
  sum.as<double>()[0] = total;
}

// The oracle uses the codecs as the reference, because their bytes define the encoding.
void OracleDevice::Encode(params::Encoding encoding, void* encoded, kernels::Buf values,
                          float scale, kernels::Buf residual, const kernels::Rounding& rounding,
                          kernels::StreamKind) {
  kernels::CheckEncoding(encoding, encoded, values);
  kernels::CheckOptionalBuf(residual, kernels::DType::kF32, values.num_elements);
  codec::EncodeWithResidual(encoding, values.as<float>(), scale, residual.as<float>(),
                            values.num_elements, rounding, static_cast<std::byte*>(encoded));
}

void OracleDevice::UpdateResidual(params::Encoding encoding, kernels::Buf residual,
                                  kernels::Buf values, float scale, const void* encoded,
                                  float decay, kernels::StreamKind) {
  kernels::CheckEncoding(encoding, encoded, values);
  kernels::CheckBuf(residual, kernels::DType::kF32, values.num_elements);
  lodestar::codec::UpdateResidual(encoding, values.as<float>(), scale,
                                  static_cast<const std::byte*>(encoded), values.num_elements,
                                  decay, residual.as<float>());
}

void OracleDevice::Dropout(kernels::Buf y, kernels::Buf x, const kernels::DropoutMask& mask) {
  kernels::CheckBuf(x, kernels::DType::kF64, x.num_elements);
  kernels::CheckBuf(y, kernels::DType::kF64, x.num_elements);
  for (int64_t i = 0; i < x.num_elements; ++i) {
    y.as<double>()[i] = kernels::IsKept(mask, i) ? x.as<double>()[i] / (1.0 - mask.rate) : 0.0;
  }
}

void OracleDevice::MomentumUpdate(kernels::Buf weights, kernels::Buf state, kernels::Buf gradient,
                                  kernels::Buf narrow, const kernels::MomentumStep& step) {
  kernels::CheckBuf(weights, kernels::DType::kF64, gradient.num_elements);
  kernels::CheckBuf(gradient, kernels::DType::kF64, gradient.num_elements);
  kernels::CheckOptionalBuf(state, kernels::DType::kF64, gradient.num_elements);
  for (int64_t i = 0; i < gradient.num_elements; ++i) {
    double& w = weights.as<double>()[i];
    const double g = gradient.as<double>()[i] * step.gradient_scale;
    double update = g;
    if (state) {
      double& v = state.as<double>()[i];
      v = step.momentum * v + g;
      update = step.nesterov ? g + step.momentum * v : v;
    }
    w -= step.learning_rate * step.weight_decay * w;
    w -= step.learning_rate * update;
  }
  if (narrow)
    Cast(narrow, weights.Slice(0, gradient.num_elements), 1.0, kernels::StreamKind::kCompute);
}

void OracleDevice::AdamWUpdate(kernels::Buf weights, kernels::Buf first_moment,
                               kernels::Buf second_moment, kernels::Buf gradient,
                               kernels::Buf narrow, const kernels::AdamWStep& step) {
  kernels::CheckBuf(weights, kernels::DType::kF64, gradient.num_elements);
  kernels::CheckBuf(first_moment, kernels::DType::kF64, gradient.num_elements);
  kernels::CheckBuf(second_moment, kernels::DType::kF64, gradient.num_elements);
  kernels::CheckBuf(gradient, kernels::DType::kF64, gradient.num_elements);
  const double correction1 = 1.0 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1.0 - std::pow(step.beta2, static_cast<double>(step.step));
  for (int64_t i = 0; i < gradient.num_elements; ++i) {
    double& w = weights.as<double>()[i];
    double& m = first_moment.as<double>()[i];
    double& v = second_moment.as<double>()[i];
    const double g = gradient.as<double>()[i] * step.gradient_scale;
    m = step.beta1 * m + (1.0 - step.beta1) * g;
    v = step.beta2 * v + (1.0 - step.beta2) * g * g;
    const double m_hat = m / correction1;
    const double v_hat = v / correction2;
    w -= step.learning_rate * step.weight_decay * w;
    w -= step.learning_rate * m_hat / (std::sqrt(v_hat) + step.epsilon);
  }
  if (narrow)
    Cast(narrow, weights.Slice(0, gradient.num_elements), 1.0, kernels::StreamKind::kCompute);
}

std::unique_ptr<kernels::Device> MakeOracleDevice() { return std::make_unique<OracleDevice>(); }

}  // namespace lodestar::oracle
