// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/gpu/bench_device.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/runtime/clock.h"
#include "common/runtime/status_macros.h"
#include "worker/tuning_file.h"

namespace lodestar {
namespace {

absl::StatusOr<kernels::DType> ParseDType(const std::string& dtype) {
  if (dtype == "fp32") return kernels::DType::kF32;
  if (dtype == "bf16") return kernels::DType::kBf16;
  return absl::InvalidArgumentError(absl::StrCat("--dtype=", dtype, ": allowed is fp32, bf16"));
}

absl::StatusOr<factory::FusionPolicy> ParseFusion(const std::string& fusion) {
  if (fusion == "measure") return factory::FusionPolicy::kMeasure;
  if (fusion == "never") return factory::FusionPolicy::kNever;
  if (fusion == "always") return factory::FusionPolicy::kAlways;
  return absl::InvalidArgumentError(
      absl::StrCat("--fusion=", fusion, ": allowed is measure, never, always"));
}

}  // namespace

absl::StatusOr<factory::DeviceOptions> ReadDeviceFlags(const BenchDeviceFlags& flags) {
  factory::DeviceOptions options{
      .kind = flags.device, .threads = flags.threads, .is_repeatable = flags.is_repeatable};
  ASSIGN_OR_RETURN(options.compute, ParseDType(flags.dtype));
  ASSIGN_OR_RETURN(options.fusion, ParseFusion(flags.fusion));
  if (!flags.tuning_file.empty()) {
    options.tuning = worker::TuningFile(flags.tuning_file, &Clock::Real()).TextForDevice();
  }
  return options;
}

void KeepTuning(const BenchDeviceFlags& flags, const kernels::Device& device) {
  if (flags.tuning_file.empty()) return;
  worker::TuningFile file(flags.tuning_file, &Clock::Real());
  file.Tell(device);
  file.Keep(device, worker::TuningFile::kPatience);
}

std::string JsonNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

void PrintChoices(const kernels::Device& device, const std::string& fusion) {
  for (absl::string_view choice :
       absl::StrSplit(device.DescribeChoices(), '\n', absl::SkipEmpty())) {
    // Replaces quotation marks and backslashes, so that the line is valid JSON.
    const std::string text = absl::StrReplaceAll(choice, {{"\"", "'"}, {"\\", "/"}});
    std::printf("{\"choice\": \"%s\", \"fusion\": \"%s\"}\n", text.c_str(), fusion.c_str());
  }
  std::fflush(stdout);
}

}  // namespace lodestar
