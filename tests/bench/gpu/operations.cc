// SPDX-License-Identifier: Apache-2.0

// Times the operations of a GPT-2 124M training step on a GPU. Prints one JSON line for the
// ceilings, one per operation, and one per choice of the device. Attention also runs with
// --fusion=never (our kernels) and always (cuDNN's, if it is installed). Times are measured by
// events on the device's compute stream.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/runtime/status_macros.h"
#include "kernels/device.h"
#include "kernels/factory/device_factory.h"
#include "tests/bench/gpu/bench_device.h"
#include "tests/bench/gpu/operation_bench.h"

ABSL_FLAG(std::string, device, "cuda", "cuda or cuda:N");
ABSL_FLAG(std::string, dtype, "bf16", "bf16 or fp32");
ABSL_FLAG(int, batch, 16, "number of samples of 1024 tokens");
ABSL_FLAG(
    std::string, fusion, "measure",
    "whether matrix products are fused and cuDNN's attention is used: measure, never or always; "
    "attention runs with all three");
ABSL_FLAG(bool, repeatable, true,
          "false lets cuDNN's attention add gradients up in any order; the same as gpu_worker's");
ABSL_FLAG(std::string, tuning_file, "",
          "file of what cards have measured, read and written; the same as gpu_worker's");
ABSL_FLAG(bool, small, false, "small shapes for an emulated card instead of those of GPT-2 124M");
ABSL_FLAG(int, repeats, 20,
          "number of timed runs of each operation, of which the median is printed");

namespace lodestar {
namespace {

absl::Status RunBenchmark() {
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  const std::string fusion = absl::GetFlag(FLAGS_fusion);
  BenchDeviceFlags flags{.device = absl::GetFlag(FLAGS_device),
                         .dtype = dtype,
                         .fusion = fusion,
                         .is_repeatable = absl::GetFlag(FLAGS_repeatable),
                         .tuning_file = absl::GetFlag(FLAGS_tuning_file)};
  const int batch = absl::GetFlag(FLAGS_batch), repeats = absl::GetFlag(FLAGS_repeats);
  if (batch < 1 || repeats < 1) {
    return absl::InvalidArgumentError("--batch and --repeats must be at least 1");
  }
  const OperationShapes shapes =
      absl::GetFlag(FLAGS_small) ? SmallOperationShapes(batch) : OperationShapes{.batch = batch};
  ASSIGN_OR_RETURN(const factory::DeviceOptions options, ReadDeviceFlags(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Device> device,
                   factory::MakeDevice(options, nullptr));
  std::printf("{\"device\": \"%s\", \"dtype\": \"%s\"}\n", device->capabilities().name.c_str(),
              dtype.c_str());
  Ceilings ceilings;
  const auto print_ceilings = [&](const Ceilings& measured) {
    ceilings = measured;
    std::printf("{\"ceiling_tb_per_second\": %s, \"ceiling_tflop_per_second\": %s}\n",
                JsonNumber(ceilings.bytes_per_second * 1e-12).c_str(),
                JsonNumber(ceilings.flops_per_second * 1e-12).c_str());
    std::fflush(stdout);
  };
  const auto print_operation = [&](const TimedOperation& timed) {
    const bool is_arithmetic = timed.flops > 0.0;
    const double rate = (is_arithmetic ? timed.flops : timed.bytes) / timed.seconds;
    const double ceiling = is_arithmetic ? ceilings.flops_per_second : ceilings.bytes_per_second;
    std::printf(
        "{\"operation\": \"%s\", \"batch\": %d, \"microseconds\": %s, \"rate\": %s, "
        "\"unit\": \"%s\", \"of_ceiling\": %s}\n",
        timed.name.c_str(), batch, JsonNumber(timed.seconds * 1e6).c_str(),
        JsonNumber(rate * 1e-12).c_str(), is_arithmetic ? "TFLOP/s" : "TB/s",
        JsonNumber(rate / ceiling).c_str());
    std::fflush(stdout);
  };
  const OperationReports reports = {.ceilings = print_ceilings, .operation = print_operation};
  RETURN_IF_ERROR(BenchOperations(device.get(), shapes, repeats, reports));
  KeepTuning(flags, *device);
  PrintChoices(*device, fusion);
  for (const char* const pinned_fusion : {"never", "always"}) {
    flags.fusion = pinned_fusion;
    ASSIGN_OR_RETURN(const factory::DeviceOptions pinned_options, ReadDeviceFlags(flags));
    ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Device> pinned,
                     factory::MakeDevice(pinned_options, nullptr));
    RETURN_IF_ERROR(BenchAttention(pinned.get(), shapes, repeats,
                                   std::string(", --fusion=") + pinned_fusion, reports));
    PrintChoices(*pinned, pinned_fusion);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lodestar::RunBenchmark();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
