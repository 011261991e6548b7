// SPDX-License-Identifier: Apache-2.0

// Implements cuBLASLt on the host:
// - Matrices are column-major, in fp32 or bf16.
// - Algorithm 0 sums in f64. Algorithm i makes i + 1 partial sums in f64 and adds them in fp32.
// - Before the epilogue, the result is rounded to fp32, like the accumulators of a card.
// - Epilogues follow NVIDIA's manual. Their vectors and auxiliary matrices have D's type.
// - The manual does not say how exact GELU is. Here its tanh is about as exact as the instruction
//   tanh.approx.f32, which an epilogue on a card may use.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cuda/emulator/runtime.h"

// NOLINTBEGIN: the names are CUDA's.
struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* auxiliary = nullptr;
  int64_t auxiliary_ld = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  int64_t rows, columns, ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {};
// NOLINTEND

namespace {

using lodestar::emulator::Card;
using lodestar::emulator::Epilogues;
using Desc = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;

constexpr size_t kVersion = 130000;
// First word of each algorithm that the heuristic names. The second word is the algorithm's number.
constexpr uint64_t kAlgorithmMark = 0x656d756c61746564;

cublasLtMatmulAlgo_t AlgorithmOf(int number) {
  return {.data = {kAlgorithmMark, static_cast<uint64_t>(number)}};
}

// Returns the algorithm's number, or -1 if the card would refuse to run the algorithm.
int NumberOf(const cublasLtMatmulAlgo_t& algorithm) {
  const auto& settings = Card::Get().settings;
  const uint64_t number = algorithm.data[1];
  if (algorithm.data[0] != kAlgorithmMark || number >= settings.algorithm_microseconds.size()) {
    return -1;
  }
  return static_cast<int>(number) == settings.refused_algorithm ? -1 : static_cast<int>(number);
}

template <typename T>
cublasStatus_t Assign(T* to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

double Get(const void* data, cudaDataType type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
}

void Put(void* data, cudaDataType type, int64_t i, double value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  } else {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(static_cast<float>(value));
  }
}

// Returns tanh(x) with a relative error of up to 2^-10. For the instruction tanh.approx.f32, PTX
// ISA 9.7.3.24 allows 2^-11.
double ApproximateTanh(double x) {
  constexpr double kSteps = 0x1p10;
  int exponent = 0;
  const double mantissa = std::frexp(std::tanh(x), &exponent);
  return std::ldexp(std::round(mantissa * kSteps) / kSteps, exponent);
}

constexpr double kRootTwoOverPi = 0.7978845608028654;

double GeluTanh(double x) { return ApproximateTanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)); }

double Gelu(double x) { return 0.5 * x * (1.0 + GeluTanh(x)); }

double GeluSlope(double x) {
  const double tanh = GeluTanh(x);
  const double inner_slope = kRootTwoOverPi * (1.0 + 3.0 * 0.044715 * x * x);
  return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope;
}

struct Product {
  Desc desc;
  float alpha, beta;
  const void* a;
  const void* b;
  const void* c;
  void* d;
  Layout a_layout, b_layout, c_layout, d_layout;
  int algorithm;

  int64_t depth() const {
    return desc.transpose_a == CUBLAS_OP_N ? a_layout.columns : a_layout.rows;
  }
  // ReadA() returns a row-major copy of op(A), ReadB() one of the transpose of op(B).
  std::vector<double> ReadA(int64_t batch) const {
    const int64_t offset = batch * a_layout.stride;
    return Read(a, a_layout, offset, desc.transpose_a == CUBLAS_OP_N, d_layout.rows);
  }
  std::vector<double> ReadB(int64_t batch) const {
    const int64_t offset = batch * b_layout.stride;
    return Read(b, b_layout, offset, desc.transpose_b == CUBLAS_OP_T, d_layout.columns);
  }
  // Returns a row-major copy of a matrix [rows, depth()] in `data`. If `along`, neighbouring
  // elements of a row are layout.ld elements apart in `data`. Otherwise neighbouring rows are.
  std::vector<double> Read(const void* data, const Layout& layout, int64_t offset, bool along,
                           int64_t rows) const {
    std::vector<double> values;
    values.reserve(rows * depth());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < depth(); ++k) {
        const int64_t i = along ? row + k * layout.ld : k + row * layout.ld;
        values.push_back(Get(data, layout.type, offset + i));
      }
    }
    return values;
  }

  // Returns the inner product of two vectors of depth() elements.
  double InnerProduct(const double* x, const double* y) const {
    const int64_t num_sums = algorithm + 1;
    if (num_sums == 1) return std::inner_product(x, x + depth(), y, 0.0);
    float sum = 0.0f;
    for (int64_t i = 0; i < num_sums; ++i) {
      const int64_t begin = depth() * i / num_sums;
      const int64_t end = depth() * (i + 1) / num_sums;
      sum += static_cast<float>(std::inner_product(x + begin, x + end, y + begin, 0.0));
    }
    return sum;
  }

  double Epilogue(double value, int64_t row, int64_t column) const {
    const uint32_t kind = desc.epilogue;
    if ((kind & CUBLASLT_EPILOGUE_BIAS) != 0) value += Get(desc.bias, d_layout.type, row);
    if (kind == CUBLASLT_EPILOGUE_GELU_AUX || kind == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      Put(desc.auxiliary, d_layout.type, row + column * desc.auxiliary_ld, value);
    }
    if (kind == CUBLASLT_EPILOGUE_DGELU) {
      return value *
             GeluSlope(Get(desc.auxiliary, d_layout.type, row + column * desc.auxiliary_ld));
    }
    if ((kind & CUBLASLT_EPILOGUE_GELU) != 0) return Gelu(value);
    if ((kind & CUBLASLT_EPILOGUE_RELU) != 0) return std::max(value, 0.0);
    return value;
  }

  void Run() const {
    for (int64_t batch = 0; batch < d_layout.batch; ++batch) {
      const std::vector<double> rows = ReadA(batch);
      const std::vector<double> columns = ReadB(batch);
      for (int64_t column = 0; column < d_layout.columns; ++column) {
        const double* y = columns.data() + column * depth();
        for (int64_t row = 0; row < d_layout.rows; ++row) {
          const double* x = rows.data() + row * depth();
          // Before the epilogue, the sum is rounded to fp32, like the accumulators of a card.
          double sum = static_cast<float>(InnerProduct(x, y) * double{alpha});
          if (beta != 0.0f) {
            sum += double{beta} *
                   Get(c, c_layout.type, batch * c_layout.stride + row + column * c_layout.ld);
          }
          Put(d, d_layout.type, batch * d_layout.stride + row + column * d_layout.ld,
              Epilogue(sum, row, column));
        }
        if (desc.epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
        Put(desc.bias, d_layout.type, column, std::accumulate(y, y + depth(), 0.0));
      }
      if (desc.epilogue != CUBLASLT_EPILOGUE_BGRADA) continue;
      for (int64_t row = 0; row < d_layout.rows; ++row) {
        const double* x = rows.data() + row * depth();
        Put(desc.bias, d_layout.type, row, std::accumulate(x, x + depth(), 0.0));
      }
    }
  }
};

// Returns true if a real card would accept the product.
bool IsValid(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  const auto swapped = [](int32_t operation) { return operation == CUBLAS_OP_T; };
  const int64_t depth = swapped(desc.transpose_a) ? a.rows : a.columns;
  if ((swapped(desc.transpose_a) ? a.columns : a.rows) != d.rows) return false;
  if ((swapped(desc.transpose_b) ? b.columns : b.rows) != depth) return false;
  if ((swapped(desc.transpose_b) ? b.rows : b.columns) != d.columns) return false;
  if (a.type != b.type || a.batch != d.batch || b.batch != d.batch) return false;
  if (a.type == CUDA_R_32F && d.type != CUDA_R_32F) return false;
  for (const Layout* layout : {&a, &b, &d}) {
    if (layout->ld < layout->rows || layout->rows <= 0 || layout->columns <= 0) return false;
  }
  const bool has_vector = (desc.epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA |
                                            CUBLASLT_EPILOGUE_BGRADB)) != 0;
  if (has_vector && desc.bias == nullptr) return false;
  if ((desc.epilogue & 128) == 0) return true;
  return desc.auxiliary != nullptr && desc.auxiliary_ld % 8 == 0 && desc.auxiliary_ld >= d.rows;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "a cuBLAS error";
  }
}

size_t cublasLtGetVersion() { return kVersion; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType_t) {
  *desc = new Desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Assign(&desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Assign(&desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Assign(&desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Assign(&desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Assign(&desc->auxiliary, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Assign(&desc->auxiliary_ld, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *layout = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? Assign(&layout->batch, value, bytes)
                                                         : Assign(&layout->stride, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void*, size_t bytes) {
  const size_t want = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
  return bytes == want ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  Card& card = Card::Get();
  const std::lock_guard lock(card.mutex());
  ++card.heuristics;
  *returned = 0;
  if (requested < 1 || !IsValid(*desc, *a, *b, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      card.settings.epilogues == Epilogues::kUnknown) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const int known = static_cast<int>(card.settings.algorithm_microseconds.size());
  for (; *returned < std::min(requested, known); ++*returned) {
    results[*returned] = {};
    results[*returned].algo = AlgorithmOf(*returned);
    results[*returned].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const std::lock_guard lock(Card::Get().mutex());
  if (!IsValid(*desc, *a, *b, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (NumberOf(*algo) < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  Card& card = Card::Get();
  const std::lock_guard lock(card.mutex());
  if (card.sticky != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!IsValid(*desc, *a_layout, *b_layout, *d_layout)) return CUBLAS_STATUS_INVALID_VALUE;
  const int number = NumberOf(*algorithm);
  if (number < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  ++card.products;
  const Product product{*desc,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        a,
                        b,
                        c,
                        d,
                        *a_layout,
                        *b_layout,
                        *c_layout,
                        *d_layout,
                        number};
  const bool has_epilogue = desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  const Epilogues epilogues = has_epilogue ? card.settings.epilogues : Epilogues::kWork;
  if (epilogues == Epilogues::kRefused) {
    // Also sets the error of the CUDA runtime. A real card does so if a kernel of cuBLASLt cannot
    // be launched.
    card.Result(cudaErrorInvalidConfiguration);
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto run = [product, epilogues] {
    if (epilogues == Epilogues::kFatal) {
      Card::Get().Break(cudaErrorIllegalAddress, "an epilogue that breaks the card");
      return;
    }
    product.Run();
    Card::Get().CheckCanaries();
  };
  const double microseconds = card.settings.algorithm_microseconds[number] *
                              (has_epilogue ? card.settings.epilogue_microseconds : 1.0);
  const cudaError_t error =
      card.Queue(stream, {.run = run, .after = {}, .microseconds = microseconds});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
