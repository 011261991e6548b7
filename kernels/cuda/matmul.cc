#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lodestar::cuda {
namespace {

// NVIDIA's advice (cuBLAS manual, "cublasSetWorkspace"): 32 MiB from Hopper on, 4 MiB before.
constexpr size_t kHopperWorkspaceBytes = size_t{32} << 20;
constexpr size_t kWorkspaceBytes = size_t{4} << 20;
// More is the same to the library.
constexpr uintptr_t kMostAlignment = 256;

uint8_t AlignmentPower(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | kMostAlignment;
  return static_cast<uint8_t>(std::countr_zero(bits));
}

cudaDataType_t TypeOf(DType dtype) {
  LODESTAR_CHECK(dtype == DType::kF32 || dtype == DType::kBf16);
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

uint32_t EpilogueOf(const MatMulCall& call) {
  // The library's A is our B.
  if (call.row_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  if (call.column_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADA;
  if (call.is_gradient) return CUBLASLT_EPILOGUE_DGELU;
  uint32_t epilogue = 0;
  if (call.bias != nullptr) epilogue |= CUBLASLT_EPILOGUE_BIAS;
  if (call.activation == Activation::kRelu) epilogue |= CUBLASLT_EPILOGUE_RELU;
  if (call.activation == Activation::kGeluTanh) {
    epilogue |=
        call.pre_activation != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  }
  return epilogue == 0 ? uint32_t{CUBLASLT_EPILOGUE_DEFAULT} : epilogue;
}

const void* EpilogueVector(const MatMulCall& call) {
  if (call.row_sums != nullptr) return call.row_sums;
  return call.column_sums != nullptr ? call.column_sums : call.bias;
}

template <typename T>
cublasStatus_t Set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) {
  return cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value));
}

// Runs calls until one fails.
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

cublasStatus_t MakeLayout(MatrixLayout* layout, DType dtype, int64_t rows, int64_t columns,
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
                                                                   Errors* errors) {
  std::unique_ptr<MatMulEngine> engine(
      new MatMulEngine(errors, compute_capability >= 90 ? kHopperWorkspaceBytes : kWorkspaceBytes));
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
  const MatMulShape& s = call.shape;
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

cublasStatus_t MatMulEngine::AskHeuristic(const Key& key, Plan* plan) {
  MatMulPreference preference;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value));
  };
  const auto alignment = [&](int i) { return uint32_t{1} << key.alignments[i]; };
  cublasLtMatmulHeuristicResult_t result = {};
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
          // The library's A is our B.
          .Then([&] { return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(1)); })
          .Then([&] { return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(2)); })
          .Then([&] {
            return cublasLtMatmulAlgoGetHeuristic(
                handle_.get(), plan->description.get(), plan->a.get(), plan->b.get(), plan->c.get(),
                plan->c.get(), preference.get(), 1, &result, &returned);
          })
          .status();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (returned == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  plan->algorithm = result.algo;
  return result.state;
}

MatMulEngine::Plan MatMulEngine::MakePlan(const Key& key, const MatMulCall& call) {
  Plan plan;
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
          .Then([&] { return AskHeuristic(key, &plan); })
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
  // The bit mask that cuBLASLt would keep, or read, of a ReLU is not what Device has.
  if (call.pre_activation != nullptr && call.activation != Activation::kGeluTanh) return false;
  return PlanFor(call).status == CUBLAS_STATUS_SUCCESS;
}

void MatMulEngine::Run(const MatMulCall& call, cudaStream_t stream) {
  const Plan& plan = PlanFor(call);
  if (plan.status != CUBLAS_STATUS_SUCCESS) {
    const MatMulShape& s = call.shape;
    errors_->Note(absl::InternalError(
        absl::StrCat(errors_->device(), ": cuBLASLt has no product of ", s.m, " x ", s.n, " x ",
                     s.k, ", batch ", s.batch, ": ", cublasLtGetStatusString(plan.status))));
    return;
  }
  errors_->Check(TryRun(call, stream), "cublasLtMatmul");
}

cublasStatus_t MatMulEngine::TryRun(const MatMulCall& call, cudaStream_t stream) {
  const Plan& plan = PlanFor(call);
  const auto alpha = static_cast<float>(call.shape.alpha);
  const float beta = call.accumulate == Accumulate::kAdd ? 1.0f : 0.0f;
  Chain chain;
  chain.Then([&] { return plan.status; }).Then([&] { return SetPointers(call, plan); }).Then([&] {
    return cublasLtMatmul(handle_.get(), plan.description.get(), &alpha, call.b.data, plan.a.get(),
                          call.a.data, plan.b.get(), &beta, call.c.data, plan.c.get(), call.c.data,
                          plan.c.get(), &plan.algorithm, workspace_.get(), workspace_bytes_,
                          stream);
  });
  return chain.status();
}

}  // namespace lodestar::cuda
