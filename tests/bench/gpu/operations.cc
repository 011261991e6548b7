// Times the operations of a GPT-2 124M training step on a GPU, one by one, against ceilings that
// are measured in the same run: a device-to-device copy for bytes, a large matrix product for
// arithmetic. Prints one JSON line per operation. Times are the device's own (events on the compute
// stream).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/encoding.h"
#include "common/status_macros.h"
#include "kernels/device.h"
#include "kernels/device_factory.h"

ABSL_FLAG(std::string, device, "cuda", "cuda or cuda:N");
ABSL_FLAG(std::string, dtype, "bf16", "bf16 or fp32");
ABSL_FLAG(int, batch, 16, "samples of 1024 tokens");
ABSL_FLAG(int, repeats, 20, "timed runs of each operation; the median counts");

namespace lodestar {
namespace {

constexpr int64_t kTokens = 1024, kHeads = 12, kHeadWidth = 64, kWidth = kHeads * kHeadWidth;
constexpr int64_t kClasses = 50257, kLogitStride = 50304, kParameters = 124439808;

// Work of one run of an operation. One of the two is 0: the limit that does not bind.
struct Work {
  double bytes = 0.0;
  double flops = 0.0;
};

class OperationBench {
 public:
  OperationBench(Device* device, DType dtype, int64_t batch, int repeats)
      : device_(device), dtype_(dtype), rows_(batch * kTokens), batch_(batch), repeats_(repeats) {}
  ~OperationBench() {
    for (void* memory : memory_) device_->Release(memory);
    device_->Release(pattern_.data);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(MakePattern());
    RETURN_IF_ERROR(MeasureCeilings());
    RETURN_IF_ERROR(Allocate());
    RETURN_IF_ERROR(TimeSequenceOperations());
    RETURN_IF_ERROR(TimeLinear("qkv", kWidth, 3 * kWidth, Activation::kNone));
    RETURN_IF_ERROR(TimeLinear("projection", kWidth, kWidth, Activation::kNone));
    RETURN_IF_ERROR(TimeLinear("fc+gelu", kWidth, 4 * kWidth, Activation::kGeluTanh));
    RETURN_IF_ERROR(TimeLinear("fc projection", 4 * kWidth, kWidth, Activation::kNone));
    RETURN_IF_ERROR(TimeHead());
    RETURN_IF_ERROR(TimeOptimizer());
    RETURN_IF_ERROR(TimeEncodings());
    return TimeHostCopies();
  }

 private:
  absl::Status MakePattern() {
    std::minstd_rand generator(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> values(kPattern);
    for (float& value : values) value = uniform(generator);
    ASSIGN_OR_RETURN(void* memory, device_->Allocate(kPattern * sizeof(float)));
    pattern_ = Buf{memory, DType::kF32, kPattern};
    device_->Copy(memory, values.data(), kPattern * sizeof(float), StreamKind::kCompute);
    return device_->Synchronize(device_->Record(StreamKind::kCompute));
  }

  // Random numbers in [-largest, largest), which repeat: on equal numbers a card draws less power
  // and runs faster.
  absl::StatusOr<Buf> New(int64_t elements, DType dtype, double largest) {
    ASSIGN_OR_RETURN(void* memory, device_->Allocate(elements * DTypeBytes(dtype)));
    memory_.push_back(memory);
    const Buf buf{memory, dtype, elements};
    if (largest == 0.0) device_->Fill(buf, 0.0);
    for (int64_t begin = 0; begin < elements && largest != 0.0; begin += kPattern) {
      const int64_t size = std::min(kPattern, elements - begin);
      device_->Cast(buf.Slice(begin, size), pattern_.Slice(0, size), largest, StreamKind::kCompute);
    }
    return buf;
  }

  // Median seconds of one run; each run is timed alone, so that launches of the next do not
  // overlap.
  absl::StatusOr<double> Seconds(const std::function<void()>& operation) {
    for (int i = 0; i < 3; ++i) operation();
    std::vector<double> seconds;
    for (int i = 0; i < repeats_; ++i) {
      const EventId begin = device_->RecordTimed(StreamKind::kCompute);
      operation();
      const EventId end = device_->RecordTimed(StreamKind::kCompute);
      RETURN_IF_ERROR(device_->Synchronize(end));
      ASSIGN_OR_RETURN(const double took, device_->SecondsBetween(begin, end));
      seconds.push_back(took);
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats_ / 2, seconds.end());
    return seconds[repeats_ / 2];
  }

  absl::Status Time(const std::string& name, const Work& work,
                    const std::function<void()>& operation) {
    ASSIGN_OR_RETURN(const double seconds, Seconds(operation));
    const bool is_arithmetic = work.flops > 0.0;
    const double rate = (is_arithmetic ? work.flops : work.bytes) / seconds;
    const double ceiling = is_arithmetic ? ceiling_flops_ : ceiling_bytes_;
    std::printf(
        "{\"operation\": \"%s\", \"batch\": %lld, \"microseconds\": %.2f, \"rate\": %.4g, "
        "\"unit\": \"%s\", \"of_ceiling\": %.3f}\n",
        name.c_str(), static_cast<long long>(batch_), seconds * 1e6, rate * 1e-12,
        is_arithmetic ? "TFLOP/s" : "TB/s", rate / ceiling);
    return absl::OkStatus();
  }

  absl::Status MeasureCeilings() {
    constexpr int64_t kCopyBytes = int64_t{1} << 30, kSide = 8192;
    ASSIGN_OR_RETURN(const Buf from, New(kCopyBytes / 4, DType::kF32, 1.0));
    ASSIGN_OR_RETURN(const Buf to, New(kCopyBytes / 4, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(const double copy_seconds, Seconds([&] {
                       device_->Copy(to.data, from.data, kCopyBytes, StreamKind::kCompute);
                     }));
    ceiling_bytes_ = 2.0 * kCopyBytes / copy_seconds;
    ASSIGN_OR_RETURN(const Buf a, New(kSide * kSide, dtype_, 0.37));
    ASSIGN_OR_RETURN(const Buf b, New(kSide * kSide, dtype_, 0.61));
    ASSIGN_OR_RETURN(const Buf c, New(kSide * kSide, dtype_, 0.0));
    const MatMulShape shape{.m = kSide, .n = kSide, .k = kSide};
    ASSIGN_OR_RETURN(const double seconds,
                     Seconds([&] { device_->MatMul(shape, c, a, b, Accumulate::kSet); }));
    ceiling_flops_ = 2.0 * kSide * kSide * kSide / seconds;
    std::printf("{\"ceiling_tb_per_second\": %.3f, \"ceiling_tflop_per_second\": %.1f}\n",
                ceiling_bytes_ * 1e-12, ceiling_flops_ * 1e-12);
    for (void* memory : memory_) device_->Release(memory);
    memory_.clear();
    return absl::OkStatus();
  }

  absl::Status Allocate() {
    const int64_t n = rows_ * kWidth;
    ASSIGN_OR_RETURN(x_, New(n, dtype_, 0.3));
    ASSIGN_OR_RETURN(y_, New(n, dtype_, 0.1));
    ASSIGN_OR_RETURN(sum_, New(n, dtype_, 0.2));
    ASSIGN_OR_RETURN(wide_, New(4 * n, dtype_, 0.2));
    ASSIGN_OR_RETURN(wide2_, New(4 * n, dtype_, 0.1));
    ASSIGN_OR_RETURN(pre_, New(4 * n, dtype_, 0.1));
    ASSIGN_OR_RETURN(weights_, New(4 * kWidth * kWidth, dtype_, 0.02));
    ASSIGN_OR_RETURN(bias_, New(4 * kWidth, dtype_, 0.01));
    ASSIGN_OR_RETURN(dweights_, New(4 * kWidth * kWidth, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(dbias_, New(4 * kWidth, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(dbeta_, New(4 * kWidth, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(mean_, New(rows_, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(rstd_, New(rows_, DType::kF32, 1.0));
    ASSIGN_OR_RETURN(losses_, New(rows_, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(log_sum_exp_, New(rows_ * kHeads, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(tokens_, New(rows_, DType::kI32, 0.0));
    std::vector<int32_t> tokens(rows_);
    for (int64_t i = 0; i < rows_; ++i) {
      tokens[i] = static_cast<int32_t>((i * i * 7 + i * 13 + 5) % kClasses);
    }
    device_->Copy(tokens_.data, tokens.data(), tokens.size() * sizeof(int32_t),
                  StreamKind::kCompute);
    return device_->Synchronize(device_->Record(StreamKind::kCompute));
  }

  absl::Status TimeSequenceOperations() {
    const double bytes = static_cast<double>(rows_ * kWidth * DTypeBytes(dtype_));
    RETURN_IF_ERROR(Time("residual + norm forward", {.bytes = 4 * bytes}, [this] {
      device_->ResidualNormForward(y_, sum_, mean_, rstd_, x_, y_, bias_, bias_, rows_, kWidth);
    }));
    RETURN_IF_ERROR(Time("norm backward", {.bytes = 4 * bytes}, [this] {
      device_->NormBackward(x_, dbias_, dbeta_, y_, sum_, mean_, rstd_, bias_, rows_, kWidth,
                            Accumulate::kAdd, Accumulate::kSet);
    }));
    const AttentionShape shape{
        .batch = batch_, .tokens = kTokens, .heads = kHeads, .head_width = kHeadWidth};
    ASSIGN_OR_RETURN(
        const Buf workspace,
        New(std::max<int64_t>(1, device_->AttentionWorkspaceElements(shape)), dtype_, 0.0));
    // Causal: half of 4 B H T^2 D forward, 2.5 times that backward.
    const double forward = 2.0 * batch_ * kHeads * kTokens * kTokens * kHeadWidth;
    RETURN_IF_ERROR(Time("attention forward", {.flops = forward}, [&] {
      device_->AttentionForward(y_, log_sum_exp_, wide_, workspace, shape);
    }));
    RETURN_IF_ERROR(Time("attention backward", {.flops = 2.5 * forward}, [&] {
      device_->AttentionBackward(wide2_, x_, y_, log_sum_exp_, wide_, workspace, shape);
    }));
    ASSIGN_OR_RETURN(const Buf table, New(kClasses * kWidth, dtype_, 0.02));
    ASSIGN_OR_RETURN(const Buf dtable, New(kClasses * kWidth, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(const Buf dpositions, New(kTokens * kWidth, DType::kF32, 0.0));
    RETURN_IF_ERROR(Time("embedding forward", {.bytes = 3 * bytes}, [&] {
      device_->EmbedForward(x_, tokens_, table, table, rows_, kTokens, kWidth);
    }));
    return Time("embedding backward", {.bytes = 2 * bytes}, [&] {
      device_->EmbedBackward(dtable, dpositions, x_, tokens_, rows_, kTokens, kWidth, kClasses);
    });
  }

  absl::Status TimeLinear(const std::string& name, int64_t in, int64_t out, Activation activation) {
    const double flops = 2.0 * rows_ * in * out;
    const Buf pre = activation == Activation::kNone ? Buf{} : pre_;
    RETURN_IF_ERROR(Time(name + " forward", {.flops = flops}, [&] {
      device_->LinearForward(wide2_, pre, wide_, weights_, bias_, rows_, in, out, activation,
                             WeightOrder::kInOut);
    }));
    return Time(name + " backward", {.flops = 2 * flops}, [&] {
      device_->LinearBackward(wide_, dweights_, dbias_, wide2_, pre, pre_, weights_, rows_, in, out,
                              activation, WeightOrder::kInOut, Accumulate::kSet);
    });
  }

  absl::Status TimeHead() {
    ASSIGN_OR_RETURN(const Buf logits, New(rows_ * kLogitStride, dtype_, 0.1));
    ASSIGN_OR_RETURN(const Buf table, New(kClasses * kWidth, dtype_, 0.02));
    const double flops = 2.0 * rows_ * kWidth * kClasses;
    const MatMulShape shape{
        .transpose_b = true, .m = rows_, .n = kClasses, .k = kWidth, .ldc = kLogitStride};
    RETURN_IF_ERROR(Time("head forward", {.flops = flops},
                         [&] { device_->MatMul(shape, logits, x_, table, Accumulate::kSet); }));
    return Time("softmax cross-entropy", {.bytes = 2.0 * rows_ * kClasses * DTypeBytes(dtype_)},
                [&] {
                  device_->SoftmaxCrossEntropy(losses_, {}, logits, tokens_, rows_, kClasses,
                                               kLogitStride, 1e-3);
                });
  }

  // Weights, two moments and gradient in fp32, the narrow weights in the compute dtype.
  absl::Status TimeOptimizer() {
    ASSIGN_OR_RETURN(const Buf weights, New(kParameters, DType::kF32, 0.1));
    ASSIGN_OR_RETURN(const Buf first, New(kParameters, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(const Buf second, New(kParameters, DType::kF32, 0.0));
    ASSIGN_OR_RETURN(const Buf gradient, New(kParameters, DType::kF32, 0.01));
    ASSIGN_OR_RETURN(const Buf narrow, New(kParameters, dtype_, 0.0));
    const Buf written = dtype_ == DType::kF32 ? Buf{} : narrow;
    const AdamWStep step{
        .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    const double bytes = 28.0 + (dtype_ == DType::kF32 ? 0.0 : DTypeBytes(dtype_));
    return Time("AdamW, 124M parameters", {.bytes = bytes * kParameters},
                [&] { device_->AdamWUpdate(weights, first, second, gradient, written, step); });
  }

  // A whole contribution, with what the last one has lost.
  absl::Status TimeEncodings() {
    ASSIGN_OR_RETURN(const Buf gradient, New(kParameters, DType::kF32, 0.01));
    ASSIGN_OR_RETURN(const Buf residual, New(kParameters, DType::kF32, 1e-4));
    ASSIGN_OR_RETURN(const Buf encoded, New(2 * kParameters, DType::kU8, 0.0));
    for (Encoding encoding : {Encoding::kBf16, Encoding::kFp16, Encoding::kInt8, Encoding::kInt4}) {
      const auto bytes = static_cast<double>(EncodedBytes(encoding, kParameters));
      const std::string name(EncodingName(encoding));
      RETURN_IF_ERROR(Time("encode in " + name, {.bytes = 8.0 * kParameters + bytes}, [&] {
        device_->Encode(encoding, encoded.data, gradient, 1.0f, residual, {.key = 1, .stream = 2},
                        StreamKind::kCompute);
      }));
      RETURN_IF_ERROR(Time("residual of " + name, {.bytes = 12.0 * kParameters + bytes}, [&] {
        device_->UpdateResidual(encoding, residual, gradient, 1.0f, encoded.data, 1.0f,
                                StreamKind::kCompute);
      }));
    }
    return absl::OkStatus();
  }

  static constexpr int64_t kPattern = int64_t{1} << 22;

  // The path of gradients and weights. Its limit is the bus, so the ratio to a copy on the device
  // only says how far below that the bus is.
  absl::Status TimeHostCopies() {
    constexpr int64_t kBytes = int64_t{256} << 20;
    ASSIGN_OR_RETURN(const Buf device_copy, New(kBytes / 4, DType::kF32, 0.5));
    ASSIGN_OR_RETURN(void* host, device_->AllocateHost(kBytes));
    const Work work{.bytes = static_cast<double>(kBytes)};
    absl::Status status = Time("copy to the host", work, [&] {
      device_->Copy(host, device_copy.data, kBytes, StreamKind::kCompute);
    });
    status.Update(Time("copy from the host", work, [&] {
      device_->Copy(device_copy.data, host, kBytes, StreamKind::kCompute);
    }));
    device_->ReleaseHost(host);
    return status;
  }

  Device* const device_;
  const DType dtype_;
  const int64_t rows_;
  const int64_t batch_;
  const int repeats_;
  double ceiling_bytes_ = 0.0;
  double ceiling_flops_ = 0.0;
  Buf pattern_;
  std::vector<void*> memory_;
  Buf x_, y_, sum_, wide_, wide2_, pre_, weights_, bias_, dweights_, dbias_, dbeta_;
  Buf mean_, rstd_, losses_, log_sum_exp_, tokens_;
};

absl::Status RunBenchmark() {
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype != "bf16" && dtype != "fp32") {
    return absl::InvalidArgumentError("--dtype=" + dtype + ": allowed is bf16, fp32");
  }
  const int batch = absl::GetFlag(FLAGS_batch), repeats = absl::GetFlag(FLAGS_repeats);
  if (batch < 1 || repeats < 1) {
    return absl::InvalidArgumentError("--batch and --repeats must be at least 1");
  }
  const DType compute = dtype == "bf16" ? DType::kBf16 : DType::kF32;
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                   MakeDevice({.kind = absl::GetFlag(FLAGS_device), .compute = compute}, nullptr));
  std::printf("{\"device\": \"%s\", \"dtype\": \"%s\"}\n", device->capabilities().name.c_str(),
              dtype.c_str());
  return OperationBench(device.get(), compute, batch, repeats).Run();
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lodestar::RunBenchmark();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
