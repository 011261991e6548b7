// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/runtime/check.h"

namespace lodestar::cuda {
namespace {

// Sizes that NVIDIA advises for the workspace (cuBLAS manual, "cublasSetWorkspace"): 32 MiB from
// Hopper on, 4 MiB before.
constexpr size_t kHopperWorkspaceBytes = size_t{32} << 20;
constexpr size_t kWorkspaceBytes = size_t{4} << 20;
// Largest alignment that we report to the library. A higher alignment makes no difference.
constexpr uintptr_t kMostAlignment = 256;

// Maximum number of algorithms that are timed. Each is first timed by one call. An algorithm is
// timed again if that call took at most kNearFastest times as long as the fastest. In each of
// kTrials trials, all these algorithms make kCallsPerTrial calls, one algorithm after the other. So
// a change of the clock rate affects all of them equally.
constexpr int kMostCandidates = 32;
constexpr int kWarmUps = 1;  // the first call loads code
constexpr double kNearFastest = 1.3;
constexpr int kTrials = 3;
constexpr int kCallsPerTrial = 4;
// Share of the time that a candidate must save against the fastest candidate before it. Otherwise
// the earlier candidate is chosen, because equal calls also differ by about this share.
constexpr double kLeastGain = 0.01;

uint8_t AlignmentPower(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | kMostAlignment;
  return static_cast<uint8_t>(std::countr_zero(bits));
}

cudaDataType_t TypeOf(kernels::DType dtype) {
  LODESTAR_CHECK(dtype == kernels::DType::kF32 || dtype == kernels::DType::kBf16);
  return dtype == kernels::DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

uint32_t EpilogueOf(const MatMulCall& call) {
  // cuBLASLt computes the transposed product, in which our B is the first factor A.
  if (call.row_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  if (call.column_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADA;
  if (call.is_gradient) return CUBLASLT_EPILOGUE_DGELU;
  uint32_t epilogue = 0;
  if (call.bias != nullptr) epilogue |= CUBLASLT_EPILOGUE_BIAS;
  if (call.activation == kernels::Activation::kRelu) epilogue |= CUBLASLT_EPILOGUE_RELU;
  if (call.activation == kernels::Activation::kGeluTanh) {
    epilogue |=
        call.pre_activation != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  }
  return epilogue == 0 ? uint32_t{CUBLASLT_EPILOGUE_DEFAULT} : epilogue;
}

const void* EpilogueVector(const MatMulCall& call) {
  if (call.row_sums != nullptr) return call.row_sums;
  return call.column_sums != nullptr ? call.column_sums : call.bias;
}

const char* NameOf(kernels::DType dtype) { return dtype == kernels::DType::kF32 ? "fp32" : "bf16"; }

constexpr size_t kDigitsPerWord = 16;

// Returns the algorithm as a text. NVIDIA allows programs to store this structure and to use it
// again with the same version of the library.
std::string TextOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) absl::StrAppendFormat(&text, "%016x", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> AlgorithmOf(absl::string_view text) {
  cublasLtMatmulAlgo_t algorithm = {};
  if (text.size() != std::size(algorithm.data) * kDigitsPerWord) return std::nullopt;
  for (uint64_t& word : algorithm.data) {
    if (!absl::SimpleHexAtoi(text.substr(0, kDigitsPerWord), &word)) return std::nullopt;
    text.remove_prefix(kDigitsPerWord);
  }
  return algorithm;
}

template <typename T>
cublasStatus_t Set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) {
  return cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value));
}

// Makes calls one after the other, until a call fails.
class Chain {
 public:
  template <typename Call>
  Chain& Then(Call call) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = call();
    return *this;
  }
  cublasStatus_t status() const { return status_; }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

cublasStatus_t MakeLayout(MatrixLayout* layout, kernels::DType dtype, int64_t rows, int64_t columns,
                          int64_t ld, int64_t batch, int64_t stride) {
  const auto batch_count = static_cast<int32_t>(batch);
  return Chain()
      .Then([&] {
        return Make(layout, [&](cublasLtMatrixLayout_t* handle) {
          return cublasLtMatrixLayoutCreate(handle, TypeOf(dtype), rows, columns, ld);
        });
      })
      .Then([&] {
        return cublasLtMatrixLayoutSetAttribute(layout->get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                &batch_count, sizeof(batch_count));
      })
      .Then([&] {
        return cublasLtMatrixLayoutSetAttribute(
            layout->get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride));
      })
      .status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MatMulEngine>> MatMulEngine::Create(int compute_capability,
                                                                   bool measures, Tuning* tuning,
                                                                   Errors* errors) {
  std::unique_ptr<MatMulEngine> engine(
      new MatMulEngine(measures && tuning->is_kept(), tuning, errors,
                       compute_capability >= 90 ? kHopperWorkspaceBytes : kWorkspaceBytes));
  const cublasStatus_t status = Make(&engine->handle_, cublasLtCreate);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(absl::StrCat(
        errors->device(), ": cuBLASLt does not start: ", cublasLtGetStatusString(status)));
  }
  const cudaError_t error = Make(&engine->workspace_, [&](void** memory) {
    return cudaMalloc(memory, engine->workspace_bytes_);
  });
  if (error != cudaSuccess) return CudaStatus(errors->device(), error, "cudaMalloc");
  return engine;
}

MatMulEngine::Key MatMulEngine::KeyOf(const MatMulCall& call) {
  const kernels::MatMulShape& s = call.shape;
  LODESTAR_CHECK(s.m > 0 && s.n > 0 && s.k > 0 && s.batch > 0);
  LODESTAR_CHECK(call.a.dtype == call.b.dtype);
  const bool is_batch = s.batch > 1;
  return Key{.m = s.m,
             .n = s.n,
             .k = s.k,
             .batch = s.batch,
             .lda = s.lda != 0 ? s.lda : (s.transpose_a ? s.m : s.k),
             .ldb = s.ldb != 0 ? s.ldb : (s.transpose_b ? s.k : s.n),
             .ldc = s.ldc != 0 ? s.ldc : s.n,
             .stride_a = is_batch ? s.stride_a : 0,
             .stride_b = is_batch ? s.stride_b : 0,
             .stride_c = is_batch ? s.stride_c : 0,
             .transpose_a = s.transpose_a,
             .transpose_b = s.transpose_b,
             .inputs = call.a.dtype,
             .output = call.c.dtype,
             .epilogue = EpilogueOf(call),
             .alignments = {AlignmentPower(call.c.data), AlignmentPower(call.a.data),
                            AlignmentPower(call.b.data), AlignmentPower(EpilogueVector(call)),
                            AlignmentPower(call.pre_activation)}};
}

std::string MatMulEngine::NameOf(const Key& key) {
  std::string name = absl::StrCat(
      "product ", cuda::NameOf(key.inputs), " to ", cuda::NameOf(key.output), " ", key.m, " x ",
      key.n, " x ", key.k, key.transpose_a ? ", a transposed" : "",
      key.transpose_b ? ", b transposed" : "", ", rows of ", key.lda, " ", key.ldb, " ", key.ldc);
  if (key.batch > 1) {
    absl::StrAppend(&name, ", batch ", key.batch, " apart ", key.stride_a, " ", key.stride_b, " ",
                    key.stride_c);
  }
  if (key.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    absl::StrAppend(&name, ", epilogue ", key.epilogue);
  absl::StrAppend(&name, ", aligned to");
  for (const uint8_t power : key.alignments) absl::StrAppend(&name, " ", 1 << power);
  return name;
}

cublasStatus_t MatMulEngine::SetPointers(const MatMulCall& call, const Plan& plan) {
  Chain chain;
  if (const void* vector = EpilogueVector(call); vector != nullptr) {
    chain.Then(
        [&] { return Set(plan.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector); });
  }
  if (call.pre_activation != nullptr) {
    chain
        .Then([&] {
          return Set(plan.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                     call.pre_activation);
        })
        .Then([&] {
          return Set(plan.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.shape.n);
        });
  }
  return chain.status();
}

bool MatMulEngine::TakeKept(Plan* plan) {
  if (!measures_) return false;
  const std::optional<std::string> kept = tuning_->Find(plan->name);
  if (!kept.has_value()) return false;
  const std::optional<cublasLtMatmulAlgo_t> algorithm = AlgorithmOf(*kept);
  if (!algorithm.has_value()) {
    tuning_->Refuse(plan->name, "it is no algorithm; one is measured again");
    return false;
  }
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_.get(), plan->description.get(), plan->a.get(), plan->b.get(),
                              plan->c.get(), plan->c.get(), &*algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes_) {
    tuning_->Refuse(
        plan->name,
        absl::StrCat("cuBLASLt does not take its algorithm: ", cublasLtGetStatusString(status),
                     ", ", result.workspaceSize, " bytes of workspace where there are ",
                     workspace_bytes_, "; one is measured again"));
    return false;
  }
  plan->algorithm = *algorithm;
  return true;
}

cublasStatus_t MatMulEngine::FindAlgorithm(const Key& key, Plan* plan) {
  return TakeKept(plan) ? CUBLAS_STATUS_SUCCESS : AskHeuristic(key, plan);
}

cublasStatus_t MatMulEngine::AskHeuristic(const Key& key, Plan* plan) {
  MatMulPreference preference;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value));
  };
  const auto alignment = [&](int i) { return uint32_t{1} << key.alignments[i]; };
  std::vector<cublasLtMatmulHeuristicResult_t> results(measures_ ? kMostCandidates : 1);
  int returned = 0;
  const cublasStatus_t status =
      Chain()
          .Then([&] { return Make(&preference, cublasLtMatmulPreferenceCreate); })
          .Then([&] {
            return set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes_});
          })
          .Then([&] {
            return set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                       uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
          })
          .Then([&] { return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(0)); })
          .Then([&] { return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(0)); })
          // cuBLASLt computes the transposed product, in which our B is the first factor A.
          .Then([&] { return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(1)); })
          .Then([&] { return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(2)); })
          .Then([&] {
            return cublasLtMatmulAlgoGetHeuristic(
                handle_.get(), plan->description.get(), plan->a.get(), plan->b.get(), plan->c.get(),
                plan->c.get(), preference.get(), static_cast<int>(results.size()), results.data(),
                &returned);
          })
          .status();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (returned == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  results.resize(returned);
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS) plan->candidates.push_back(result.algo);
  }
  if (plan->candidates.empty()) return results.front().state;
  plan->algorithm = plan->candidates.front();
  if (plan->candidates.size() == 1) plan->candidates.clear();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t MatMulEngine::Launch(const MatMulCall& call, const Plan& plan,
                                    const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
  const auto alpha = static_cast<float>(call.shape.alpha);
  const float beta = call.accumulate == kernels::Accumulate::kAdd ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), plan.description.get(), &alpha, call.b.data, plan.a.get(),
                        call.a.data, plan.b.get(), &beta, call.c.data, plan.c.get(), call.c.data,
                        plan.c.get(), &algorithm, workspace_.get(), workspace_bytes_, stream);
}

cudaError_t MatMulEngine::TimeCandidate(const MatMulCall& call, const Plan& plan,
                                        const cublasLtMatmulAlgo_t& algorithm, int calls,
                                        cudaStream_t stream, double* seconds) {
  if (*seconds < 0.0) return cudaSuccess;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  double measured = 0.0;
  const cudaError_t error = timer_.Measure(
      stream, calls,
      [&] {
        if (status == CUBLAS_STATUS_SUCCESS) status = Launch(call, plan, algorithm, stream);
      },
      &measured);
  if (error != cudaSuccess) return error;
  if (status != CUBLAS_STATUS_SUCCESS) cudaGetLastError();  // clears an error that is handled here
  *seconds = status == CUBLAS_STATUS_SUCCESS ? measured : -1.0;
  return cudaSuccess;
}

cudaError_t MatMulEngine::TimeCandidates(const MatMulCall& call, Plan* plan, cudaStream_t stream,
                                         std::vector<double>* seconds) {
  const std::vector<cublasLtMatmulAlgo_t>& candidates = plan->candidates;
  seconds->assign(candidates.size(), 0.0);
  const auto time_all = [&](int calls, std::vector<double>* times) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      const cudaError_t error =
          TimeCandidate(call, *plan, candidates[i], calls, stream, &(*times)[i]);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  };
  for (const int calls : {kWarmUps, 1}) {
    if (cudaError_t error = time_all(calls, seconds); error != cudaSuccess) return error;
  }
  double fastest = std::numeric_limits<double>::infinity();
  for (const double once : *seconds) {
    if (once >= 0.0) fastest = std::min(fastest, once);
  }
  // The first candidate is always timed again, because it is chosen unless another one is faster by
  // kLeastGain.
  for (size_t i = 1; i < seconds->size(); ++i) {
    if ((*seconds)[i] > kNearFastest * fastest) (*seconds)[i] = -1.0;
  }
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> times = *seconds;
    if (cudaError_t error = time_all(kCallsPerTrial, &times); error != cudaSuccess) return error;
    for (size_t i = 0; i < times.size(); ++i) {
      double& best = (*seconds)[i];
      best = trial == 0 || times[i] < 0.0 ? times[i] : std::min(best, times[i]);
    }
  }
  return cudaSuccess;
}

void MatMulEngine::ChooseAlgorithm(const MatMulCall& call, Plan* plan, cudaStream_t stream) {
  // Waits for the stream first. Otherwise errors of earlier operations might appear to come from
  // the calls that are timed here.
  if (!errors_->Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize")) return;
  MatMulCall trial = call;
  DeviceMemory sum;
  if (call.accumulate == kernels::Accumulate::kAdd) {
    const cudaError_t error =
        Make(&sum, [&](void** memory) { return cudaMalloc(memory, plan->c_bytes); });
    if (error != cudaSuccess) {
      cudaGetLastError();  // clears the error, which is handled here
      plan->candidates.clear();
      // The heuristic's first algorithm is stored as the choice, so that later runs use it too.
      tuning_->Keep(plan->name, TextOf(plan->algorithm),
                    "the heuristic's first: there was no memory to time others");
      return;
    }
    trial.c.data = sum.get();
    errors_->Check(cudaMemsetAsync(sum.get(), 0, plan->c_bytes, stream), "cudaMemsetAsync");
  }
  std::vector<double> seconds;
  plan->timing_error = TimeCandidates(trial, plan, stream, &seconds);
  const std::vector<cublasLtMatmulAlgo_t> candidates = std::exchange(plan->candidates, {});
  if (plan->timing_error != cudaSuccess) return;
  size_t fastest = 0;
  for (size_t i = 1; i < seconds.size(); ++i) {
    if (seconds[i] < 0.0) continue;
    if (seconds[fastest] < 0.0 || seconds[i] < (1.0 - kLeastGain) * seconds[fastest]) fastest = i;
  }
  if (seconds[fastest] < 0.0) return;  // all are refused, so the call fails too
  plan->algorithm = candidates[fastest];
  const std::string why =
      absl::StrFormat("candidate %d of %d: %.1f us, the first: %s", fastest + 1, seconds.size(),
                      seconds[fastest] * 1e6,
                      seconds[0] < 0.0 ? "refused" : absl::StrFormat("%.1f us", seconds[0] * 1e6));
  tuning_->Keep(plan->name, TextOf(plan->algorithm), why);
  const std::lock_guard lock(mutex_);
  absl::StrAppend(&timed_, timed_.empty() ? "" : "\n", plan->name, ": ", why);
}

std::string MatMulEngine::Describe() const {
  const std::lock_guard lock(mutex_);
  return timed_;
}

MatMulEngine::Plan MatMulEngine::MakePlan(const Key& key, const MatMulCall& call) {
  Plan plan;
  plan.name = NameOf(key);
  plan.c_bytes = kernels::DTypeBytes(key.output) *
                 ((key.batch - 1) * key.stride_c + (key.m - 1) * key.ldc + key.n);
  const auto operation = [](bool transposes) -> int32_t {
    return transposes ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const int64_t a_rows = key.transpose_a ? key.k : key.m;
  const int64_t b_rows = key.transpose_b ? key.n : key.k;
  plan.status =
      Chain()
          .Then([&] {
            return Make(&plan.description, [](cublasLtMatmulDesc_t* handle) {
              return cublasLtMatmulDescCreate(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F);
            });
          })
          .Then([&] {
            return Set(plan.description.get(), CUBLASLT_MATMUL_DESC_TRANSA,
                       operation(key.transpose_b));
          })
          .Then([&] {
            return Set(plan.description.get(), CUBLASLT_MATMUL_DESC_TRANSB,
                       operation(key.transpose_a));
          })
          .Then([&] {
            return Set(plan.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
          })
          .Then([&] {
            return MakeLayout(&plan.a, key.inputs, key.transpose_b ? key.k : key.n, b_rows, key.ldb,
                              key.batch, key.stride_b);
          })
          .Then([&] {
            return MakeLayout(&plan.b, key.inputs, key.transpose_a ? key.m : key.k, a_rows, key.lda,
                              key.batch, key.stride_a);
          })
          .Then([&] {
            return MakeLayout(&plan.c, key.output, key.n, key.m, key.ldc, key.batch, key.stride_c);
          })
          .Then([&] { return SetPointers(call, plan); })
          .Then([&] { return FindAlgorithm(key, &plan); })
          .status();
  return plan;
}

MatMulEngine::Plan& MatMulEngine::PlanFor(const MatMulCall& call) {
  const Key key = KeyOf(call);
  const auto it = plans_.find(key);
  if (it != plans_.end()) return it->second;
  return plans_.emplace(key, MakePlan(key, call)).first->second;
}

bool MatMulEngine::Supports(const MatMulCall& call) {
  // For a ReLU, cuBLASLt stores a bit mask, but Device stores the pre-activation. So a product with
  // a ReLU that stores its pre-activation cannot be fused.
  if (call.pre_activation != nullptr && call.activation != kernels::Activation::kGeluTanh)
    return false;
  return PlanFor(call).status == CUBLAS_STATUS_SUCCESS;
}

void MatMulEngine::Run(const MatMulCall& call, bool is_recording, cudaStream_t stream) {
  const Plan& plan = PlanFor(call);
  if (plan.status != CUBLAS_STATUS_SUCCESS) {
    const kernels::MatMulShape& s = call.shape;
    errors_->Note(absl::InternalError(
        absl::StrCat(errors_->device(), ": cuBLASLt has no product of ", s.m, " x ", s.n, " x ",
                     s.k, ", batch ", s.batch, ": ", cublasLtGetStatusString(plan.status))));
    return;
  }
  const cublasStatus_t status = TryRun(call, is_recording, stream);
  if (plan.timing_error != cudaSuccess) {
    errors_->Note(absl::InternalError(absl::StrCat(
        errors_->device(), ": timing the algorithms of ", plan.name,
        " failed: ", cudaGetErrorName(plan.timing_error), ": ",
        cudaGetErrorString(plan.timing_error), "; start again without --tuning_file")));
  }
  errors_->Check(status, "cublasLtMatmul");
}

cublasStatus_t MatMulEngine::TryRun(const MatMulCall& call, bool is_recording,
                                    cudaStream_t stream) {
  Plan& plan = PlanFor(call);
  return Chain()
      .Then([&] { return plan.status; })
      .Then([&] { return SetPointers(call, plan); })
      .Then([&] {
        if (!plan.candidates.empty() && !is_recording) ChooseAlgorithm(call, &plan, stream);
        // The card has failed while algorithms were timed. The caller reports the card's error.
        if (plan.timing_error != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
        return Launch(call, plan, plan.algorithm, stream);
      })
      .status();
}

}  // namespace lodestar::cuda
