// SPDX-License-Identifier: Apache-2.0

#include "kernels/testing/device_test_rig.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/runtime/check.h"

namespace lodestar::kernels {
namespace {

constexpr int64_t kCanaryElements = 16;
constexpr double kCanary = 123.0;

// Returns the largest relative error of rounding to nearest. 0 means that the type does not round.
double RoundingUnit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::ldexp(1.0, -53);
    case DType::kF32:
      return std::ldexp(1.0, -24);
    case DType::kF16:
      return std::ldexp(1.0, -11);
    case DType::kBf16:
      return std::ldexp(1.0, -8);
    default:
      return 0.0;
  }
}

float RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

double RoundTo(DType dtype, double value) {
  if (dtype == DType::kF64) return value;
  const float narrow = static_cast<float>(value);
  return dtype == DType::kBf16 && std::isfinite(narrow) ? RoundToBf16(narrow) : narrow;
}

void Encode(void* to, DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      *static_cast<double*>(to) = value;
      break;
    case DType::kF32:
      *static_cast<float*>(to) = static_cast<float>(value);
      break;
    case DType::kBf16:
      *static_cast<uint16_t*>(to) = static_cast<uint16_t>(
          std::bit_cast<uint32_t>(static_cast<float>(RoundTo(dtype, value))) >> 16);
      break;
    case DType::kF16:
      *static_cast<_Float16*>(to) = static_cast<_Float16>(static_cast<float>(value));
      break;
    case DType::kI32:
      *static_cast<int32_t*>(to) = std::isnan(value) ? -1 : static_cast<int32_t>(value);
      break;
    case DType::kU8:
      *static_cast<uint8_t*>(to) = std::isnan(value) ? 255 : static_cast<uint8_t>(value);
      break;
  }
}

double Decode(const void* from, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return *static_cast<const double*>(from);
    case DType::kF32:
      return *static_cast<const float*>(from);
    case DType::kBf16:
      return std::bit_cast<float>(uint32_t{*static_cast<const uint16_t*>(from)} << 16);
    case DType::kF16:
      return static_cast<float>(*static_cast<const _Float16*>(from));
    case DType::kI32:
      return *static_cast<const int32_t*>(from);
    case DType::kU8:
      return *static_cast<const uint8_t*>(from);
  }
  return 0.0;
}

}  // namespace

DeviceTestRig::DeviceTestRig(Device* device, DType input_dtype, uint32_t seed)
    : device_(device), input_dtype_(input_dtype), generator_(seed) {}

DeviceTestRig::~DeviceTestRig() {
  for (void* memory : memory_) device_->Release(memory);
}

DType DeviceTestRig::statistics_dtype() const {
  return StatisticsDType(device_->capabilities().compute);
}

Buf DeviceTestRig::Allocate(int64_t n, DType dtype) {
  rounding_unit_ = std::max(rounding_unit_, RoundingUnit(dtype));
  auto memory = device_->Allocate((n + kCanaryElements) * DTypeBytes(dtype));
  LODESTAR_CHECK(memory.ok()) << memory.status().ToString();
  memory_.push_back(*memory);
  return Buf{*memory, dtype, n};
}

void DeviceTestRig::Upload(Buf to, const std::vector<double>& values) {
  const size_t bytes = DTypeBytes(to.dtype);
  std::vector<char> host(values.size() * bytes);
  for (size_t i = 0; i < values.size(); ++i) Encode(&host[i * bytes], to.dtype, values[i]);
  device_->Copy(to.data, host.data(), host.size(), StreamKind::kCompute);
  LODESTAR_CHECK(device_->Synchronize(device_->Record(StreamKind::kCompute)).ok());
}

std::vector<double> DeviceTestRig::Download(Buf from) {
  const size_t bytes = DTypeBytes(from.dtype);
  std::vector<char> host(from.num_elements * bytes);
  device_->Copy(host.data(), from.data, host.size(), StreamKind::kCompute);
  LODESTAR_CHECK(device_->Synchronize(device_->Record(StreamKind::kCompute)).ok());
  std::vector<double> values(from.num_elements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = Decode(&host[i * bytes], from.dtype);
  return values;
}

Buf DeviceTestRig::Random(int64_t n) { return Random(n, device_->capabilities().compute); }

Buf DeviceTestRig::Random(int64_t n, DType dtype) {
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::vector<double> values(n);
  for (double& value : values) value = uniform(generator_);
  return Values(values, dtype);
}

Buf DeviceTestRig::Values(const std::vector<double>& values) {
  return Values(values, device_->capabilities().compute);
}

Buf DeviceTestRig::Values(const std::vector<double>& values, DType dtype) {
  std::vector<double> rounded;
  rounded.reserve(values.size());
  for (double value : values) rounded.push_back(RoundTo(input_dtype_, value));
  const Buf buf = Allocate(static_cast<int64_t>(values.size()), dtype);
  Upload(buf, rounded);
  return buf;
}

Buf DeviceTestRig::Integers(int64_t n, int32_t end) {
  std::uniform_int_distribution<int32_t> uniform(0, end - 1);
  std::vector<double> values(n);
  for (double& value : values) value = uniform(generator_);
  const Buf buf = Allocate(n, DType::kI32);
  Upload(buf, values);
  return buf;
}

Buf DeviceTestRig::Output(const std::string& name, int64_t n) {
  return Output(name, n, device_->capabilities().compute);
}

Buf DeviceTestRig::Output(const std::string& name, int64_t n, DType dtype) {
  const Buf buf = Allocate(n, dtype);
  std::vector<double> values(n, std::numeric_limits<double>::quiet_NaN());
  values.resize(n + kCanaryElements, kCanary);
  Upload(buf, values);
  outputs_.push_back({name, buf});
  return buf;
}

Buf DeviceTestRig::Output(const std::string& name, const std::vector<double>& values) {
  const Buf buf = Output(name, static_cast<int64_t>(values.size()));
  const Buf from = Values(values);
  device_->Copy(buf.data, from.data, values.size() * DTypeBytes(buf.dtype), StreamKind::kCompute);
  return buf;
}

Buf DeviceTestRig::InOut(const std::string& name, int64_t n) {
  return InOut(name, n, device_->capabilities().compute);
}

Buf DeviceTestRig::InOut(const std::string& name, int64_t n, DType dtype) {
  const Buf buf = Output(name, n, dtype);
  const Buf random = Random(n, dtype);
  device_->Copy(buf.data, random.data, n * DTypeBytes(buf.dtype), StreamKind::kCompute);
  return buf;
}

Buf DeviceTestRig::Workspace(int64_t n) { return Allocate(n, device_->capabilities().compute); }

Outputs DeviceTestRig::Collect() {
  Outputs outputs;
  for (const Named& output : outputs_) {
    Buf whole = output.buf;
    whole.num_elements += kCanaryElements;
    std::vector<double> values = Download(whole);
    for (int64_t i = output.buf.num_elements; i < whole.num_elements; ++i) {
      LODESTAR_CHECK(values[i] == kCanary) << output.name << " was written beyond its end";
    }
    values.resize(output.buf.num_elements);
    outputs[output.name] = std::move(values);
  }
  return outputs;
}

}  // namespace lodestar::kernels
