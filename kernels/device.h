// Device: the operations of all models on one accelerator (or the CPU), and its memory, streams and
// events. One implementation per kind of device, chosen in device_factory.h; every implementation
// passes testing/device_conformance.h and takes its overrides of the operations from
// device_operations.inc.
//
// Operations are asynchronous on their stream, take plain shapes, never allocate and never read
// back to the host. They return nothing: the first failure sticks to the device and is returned by
// Synchronize(). Calls with sizes that do not fit are broken invariants of the caller (CHECK). All
// matrices are row-major. Unless said otherwise outputs must not overlap inputs.
//
// Element types: activations, their gradients and the parameters that operations read (w, bias,
// gamma, beta, tables) have the compute dtype; gradients of parameters and statistics have
// StatisticsDType(compute), f32 where it is bf16. Vectors of the optimizers are StatisticsDType.
//
// Synchronize(), CopyNow(), and what registers host memory, or describes, counts or merges choices,
// may be called from any thread, everything else by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/encoding.h"
#include "kernels/buf.h"
#include "kernels/device_group.h"
#include "kernels/dropout_mask.h"
#include "kernels/operation_arguments.h"

namespace lodestar {

enum class StreamKind : uint8_t { kCompute, kDeviceToHost, kHostToDevice };

struct DeviceCapabilities {
  std::string name;  // "cpu (avx512, 2 threads)", "NVIDIA H200"
  DType compute = DType::kF32;
  bool has_bf16 = false;            // it can be made to compute in bf16, too
  bool memory_is_host = true;       // the host may read and write device memory directly
  size_t memory_bytes = 0;          // all that the device has for this process; 0: unknown
  std::string memory_limited_by{};  // main memory: "this machine", "the control group /jobs/7"
};

using EventId = int64_t;
using GraphId = int64_t;

// What the text of Device::MergeTuning() begins with, in whatever version.
inline constexpr absl::string_view kTuningTextBegin = "lodestar tuning ";

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceCapabilities& capabilities() const = 0;
  // Lists the operations that this device could run in several ways, a line each, with the way it
  // has chosen and why: "attention forward 16 x 1024 tokens, 12 heads of 64, cuDNN 9.19.0: library
  // (...)". They are what is fused into matrix products, attention by a library (or why that serves
  // none) and, if the device was made with a text of MergeTuning(), algorithms of matrix products.
  // A line is added at the first use of a shape, and changes if a library refuses a later call. The
  // text is empty as long as there was nothing to choose. Any thread may call it, at any time.
  virtual std::string DescribeChoices() const { return ""; }
  // Number of those for which a library was refused because its outputs are not those of our
  // kernels.
  virtual int64_t num_refused_outputs() const { return 0; }
  // The text that the next device of this kind may be made with (DeviceOptions::tuning) to choose
  // the same without measuring: what is in `kept`, a text of another device or of an earlier run
  // (or empty), as far as it is good for this one, and what this one has chosen besides. Empty for
  // a device that chooses nothing, or was made without such a text.
  virtual std::string MergeTuning(absl::string_view /*kept*/) const { return ""; }
  // What of the text that it was made with the device does not use, and why, a line each.
  virtual std::string DescribeTuning() const { return ""; }

  // Memory. 64-byte aligned, contents undefined. Host memory is pinned where that helps copies.
  // Errors: ResourceExhausted with the bytes asked for and free.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Release(void* memory) = 0;
  // What could be allocated now, unless others take it first; 0: unknown.
  virtual size_t FreeMemoryBytes() { return 0; }
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void ReleaseHost(void* memory) = 0;
  // Lets copies go straight to and from memory that somebody else has mapped, which is then pinned
  // and stays mapped until it is unregistered; it begins at a page. Without effect on devices whose
  // memory is the host's. Errors: why the device, or the system, does not take it; nothing else
  // changes then.
  virtual absl::Status RegisterHostMemory(void* memory, size_t bytes);
  // No copy is under way.
  virtual void UnregisterHostMemory(void* memory);

  // Streams and events. CPU devices run everything inline.
  virtual EventId Record(StreamKind stream) = 0;
  virtual void Wait(StreamKind stream, EventId event) = 0;
  // Blocks until the event has happened; returns the first failure of any operation so far.
  virtual absl::Status Synchronize(EventId event) = 0;
  // An event that SecondsBetween() takes.
  virtual EventId RecordTimed(StreamKind stream);
  // Time on the device between two events of RecordTimed(); waits for both. Errors: Unimplemented
  // on devices that run inline, where the host's clock tells.
  virtual absl::StatusOr<double> SecondsBetween(EventId from, EventId to);

  // Graphs: what is queued on the compute stream between BeginGraph() and EndGraph() is recorded,
  // not run, and run as a whole by each LaunchGraph(), with the arguments and memory of the
  // recording. Nothing else may be called between the two but operations on the compute stream.
  // Only where supports_graphs().
  virtual bool supports_graphs() const { return false; }
  virtual void BeginGraph();
  virtual absl::StatusOr<GraphId> EndGraph();
  virtual void LaunchGraph(GraphId graph);

  // This device, which is the first of `members`, and others that were made alike, in their order;
  // all of them outlive the group. Errors: Unimplemented on devices that are no cards; those of
  // memory.
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> MakeGroup(absl::Span<Device* const> members);

  // Copies `bytes` between any of host and device memory.
  virtual void Copy(void* destination, const void* source, size_t bytes, StreamKind stream) = 0;
  // Copies `bytes` between device memory and host memory, which is pinned where that helps, in the
  // direction of `stream` (not kCompute), ordered with nothing that streams have been given: the
  // caller knows that both ends are ready. Returns when the copy is done; `meanwhile` is called
  // while it runs. Returns the first failure of any operation so far.
  virtual absl::Status CopyNow(void* destination, const void* source, size_t bytes,
                               StreamKind stream, absl::FunctionRef<void()> meanwhile);
  virtual void Fill(Buf y, double value) = 0;
  // y = scale * x, between any of f32, f64, bf16, f16 that the device has.
  virtual void Cast(Buf y, Buf x, double scale, StreamKind stream) = 0;
  // y += a * x; StatisticsDType, as are Subtract and SumOfSquares.
  virtual void AddScaled(Buf y, Buf x, double a) = 0;
  // z = x - y; z may be x or y.
  virtual void Subtract(Buf z, Buf x, Buf y) = 0;
  // *sum (f64 [1], device memory) = sum of squares of x, in a fixed order.
  virtual void SumOfSquares(Buf sum, Buf x) = 0;

  // Wire encodings (common/encoding.h) but kFp32, which is the vector itself. `encoded`: device
  // memory, 4-byte aligned, EncodedBytes() of values.num_elements; values, residual: f32.
  // encoded = scale * values + residual (may be empty). The same bytes on every device, but for the
  // sign of a NaN.
  virtual void Encode(Encoding encoding, void* encoded, Buf values, float scale, Buf residual,
                      const Rounding& rounding, StreamKind stream) = 0;
  // residual = decay * ((scale * values + residual) - decoded): what Encode() of the same has lost,
  // and how much of that is carried over.
  virtual void UpdateResidual(Encoding encoding, Buf residual, Buf values, float scale,
                              const void* encoded, float decay, StreamKind stream) = 0;
  // Encode() with a residual, and `next_residual`, which overlaps nothing, is what UpdateResidual()
  // then makes of it.
  virtual void EncodeAndUpdate(Encoding encoding, void* encoded, Buf next_residual, Buf values,
                               float scale, Buf residual, const Rounding& rounding, float decay,
                               StreamKind stream);

  // y = act(x); y may be x. On the CPU the same bits as LinearForward gives for the values before
  // the activation.
  virtual void Activate(Buf y, Buf x, Activation activation) = 0;
  // y[i] = x[i] / (1 - rate) where the mask keeps it, else 0; y may be x. Backward is the same call
  // on the gradient.
  virtual void Dropout(Buf y, Buf x, const DropoutMask& mask) = 0;

  // a, b: compute dtype; c: that or StatisticsDType.
  virtual void MatMul(const MatMulShape& shape, Buf c, Buf a, Buf b, Accumulate accumulate) = 0;

  // y[rows,out] = act(x[rows,in] w[out,in]^T + bias[out]), or x w[in,out] as `order` says; bias may
  // be empty. pre_activation [rows,out] is written where act is not kNone and it is not empty (it
  // must then be given to LinearBackward). On the CPU both orders give the same bits.
  virtual void LinearForward(Buf y, Buf pre_activation, Buf x, Buf w, Buf bias, int64_t rows,
                             int64_t in, int64_t out, Activation activation, WeightOrder order) = 0;
  // From dy (which is overwritten by the gradient before the activation where act is not kNone):
  // dx (set; empty: not wanted), dw (which lies as w does) and db (set or added as `weights` says;
  // db may be empty).
  virtual void LinearBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf pre_activation, Buf x, Buf w,
                              int64_t rows, int64_t in, int64_t out, Activation activation,
                              WeightOrder order, Accumulate weights) = 0;
  // Between two layers, of which the first has an activation (not kNone) and the second none:
  // dx[rows,in] = (dy[rows,out] w) * act'(pre_activation[rows,in]), the gradient before the first
  // one's activation, from that to the second one's output and its weights; and db (f32 [in], may
  // be empty) of the first one, the sums of dx over the rows, set or added as `weights` says.
  virtual void LinearBackwardInput(Buf dx, Buf db, Buf dy, Buf pre_activation, Buf w, int64_t rows,
                                   int64_t in, int64_t out, Activation activation,
                                   WeightOrder order, Accumulate weights) = 0;

  // sum = a + b (b empty: sum = a, and sum may be a), then y = (sum - mean) * rstd * gamma + beta
  // per row, eps 1e-5. y, sum, a, b [rows,width]; gamma, beta [width]; mean, rstd [rows] are f32
  // (f64 on the oracle).
  virtual void ResidualNormForward(Buf y, Buf sum, Buf mean, Buf rstd, Buf a, Buf b, Buf gamma,
                                   Buf beta, int64_t rows, int64_t width) = 0;
  // dx (+)= gradient to `sum`; dgamma, dbeta set or added as `weights` says.
  virtual void NormBackward(Buf dx, Buf dgamma, Buf dbeta, Buf dy, Buf sum, Buf mean, Buf rstd,
                            Buf gamma, int64_t rows, int64_t width, Accumulate input,
                            Accumulate weights) = 0;

  // Causal self-attention, scale 1/sqrt(head_width). qkv [batch, tokens, 3, heads, head_width];
  // y [batch, tokens, heads, head_width]; log_sum_exp [batch, heads, tokens] is saved for backward.
  // workspace: at least AttentionWorkspaceElements() of the compute dtype. With shape.dropout the
  // probabilities that mix the values are dropped and scaled; log_sum_exp is that of all.
  virtual int64_t AttentionWorkspaceElements(const AttentionShape& shape) = 0;
  virtual void AttentionForward(Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                                const AttentionShape& shape) = 0;
  // dqkv is set.
  virtual void AttentionBackward(Buf dqkv, Buf dy, Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                                 const AttentionShape& shape) = 0;

  // y[r,:] = token_table[tokens[r],:] + position_table[r % context_tokens,:]; tokens i32 [rows].
  virtual void EmbedForward(Buf y, Buf tokens, Buf token_table, Buf position_table, int64_t rows,
                            int64_t context_tokens, int64_t width) = 0;
  // Adds into dtoken_table [vocabulary,width] and dposition_table [context_tokens,width];
  // deterministic.
  virtual void EmbedBackward(Buf dtoken_table, Buf dposition_table, Buf dy, Buf tokens,
                             int64_t rows, int64_t context_tokens, int64_t width,
                             int64_t vocabulary) = 0;

  // losses[r] = -log softmax(logits[r,:])[targets[r]]; correct[r] (i32) = 1 if the largest logit
  // (the lowest index of equals) is the target's, else 0; empty: not wanted. If `scale` is not 0,
  // logits are overwritten by the gradient (softmax - onehot) * scale. losses, correct, targets
  // [rows]; logits [rows,row_stride], of which the columns from `classes` on are not read, and set
  // to 0 with the gradient.
  virtual void SoftmaxCrossEntropy(Buf losses, Buf correct, Buf logits, Buf targets, int64_t rows,
                                   int64_t classes, int64_t row_stride, double scale) = 0;

  // y = relu(conv(x, w) + bias); x [samples,in,height,width], w [out,in,3,3], bias [out], y
  // [samples,out,height,width]. workspace: ConvWorkspaceElements().
  virtual int64_t ConvWorkspaceElements(const ConvShape& shape) = 0;
  virtual void ConvReluForward(Buf y, Buf x, Buf w, Buf bias, Buf workspace,
                               const ConvShape& shape) = 0;
  // dy is overwritten by the gradient before the ReLU (y tells where it was active). dx may be
  // empty.
  virtual void ConvReluBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf y, Buf x, Buf w, Buf workspace,
                                const ConvShape& shape, Accumulate weights) = 0;
  // 2x2, stride 2: x [planes,height,width], y and argmax (u8) [planes,height/2,width/2], rounded
  // down; argmax is 0..3 in row-major order, the first of equals.
  virtual void MaxPoolForward(Buf y, Buf argmax, Buf x, int64_t planes, int64_t height,
                              int64_t width) = 0;
  // dx is set (zero where not the maximum).
  virtual void MaxPoolBackward(Buf dx, Buf dy, Buf argmax, int64_t planes, int64_t height,
                               int64_t width) = 0;

  // Optimizers over StatisticsDType vectors, in place. `narrow` (may be empty) is set to the new
  // weights, rounded to its dtype. weight_decay is decoupled: w -= lr * weight_decay * w. momentum
  // state (state empty: plain SGD): v = momentum * v + g; w -= lr * (nesterov ? g + momentum * v :
  // v).
  virtual void MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf narrow,
                              const MomentumStep& step) = 0;
  // Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2, with PyTorch's placement of epsilon:
  // w -= lr * weight_decay * w; w -= lr * m_hat / (sqrt(v_hat) + epsilon).
  virtual void AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient,
                           Buf narrow, const AdamWStep& step) = 0;
};

}  // namespace lodestar
