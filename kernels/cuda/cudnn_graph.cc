// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cudnn_graph.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::cuda {
namespace {

// Makes one descriptor. The first failure is stored in *status. After that, calls do nothing.
class Builder {
 public:
  // `what` names the descriptor in messages.
  Builder(const CudnnApi& api, cudnnBackendDescriptorType_t type, const char* what,
          absl::Status* status)
      : api_(api), what_(what), status_(status) {
    void* descriptor = nullptr;
    if (status_->ok()) Check(api_.create_descriptor(type, &descriptor), "create ");
    descriptor_ = CudnnDescriptor(descriptor, CudnnDescriptorReleaser(&api_));
  }

  template <typename T>
  Builder& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               std::span<const T> values) {
    if (status_->ok()) {
      Check(api_.set_attribute(descriptor_.get(), name, type, static_cast<int64_t>(values.size()),
                               values.data()),
            "describe ");
    }
    return *this;
  }
  template <typename T>
  Builder& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return Set(name, type, std::span<const T>(&value, 1));
  }
  Builder& Set(cudnnBackendAttributeName_t name, int64_t value) {
    return Set(name, CUDNN_TYPE_INT64, value);
  }
  Builder& Set(cudnnBackendAttributeName_t name, bool value) {
    return Set(name, CUDNN_TYPE_BOOLEAN, value);
  }
  Builder& Set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return Set(name, CUDNN_TYPE_DATA_TYPE, value);
  }
  Builder& Set(cudnnBackendAttributeName_t name, void* descriptor) {
    return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptor);
  }
  Builder& Set(cudnnBackendAttributeName_t name, const CudnnTensor* tensor) {
    return tensor == nullptr ? *this : Set(name, tensor->descriptor.get());
  }

  CudnnDescriptor Finish() {
    if (status_->ok()) Check(api_.finalize(descriptor_.get()), "finalize ");
    return std::move(descriptor_);
  }

 private:
  void Check(cudnnStatus_t status, const char* step) {
    *status_ = CudnnStatus(api_, status, absl::StrCat(step, what_).c_str());
  }

  const CudnnApi& api_;
  const char* what_;
  absl::Status* status_;
  CudnnDescriptor descriptor_;
};

// Returns one number of a finished descriptor. On failure, returns 0 and sets *status.
int64_t NumberOf(const CudnnApi& api, void* descriptor, cudnnBackendAttributeName_t name,
                 const char* what, absl::Status* status) {
  int64_t value = 0, count = 0;
  if (status->ok()) {
    *status = CudnnStatus(
        api, api.get_attribute(descriptor, name, CUDNN_TYPE_INT64, 1, &count, &value), what);
  }
  return value;
}

}  // namespace

CudnnTarget::~CudnnTarget() {
  if (handle_ != nullptr) api_->destroy(handle_);
}

absl::StatusOr<std::shared_ptr<const CudnnTarget>> CudnnTarget::PresentDevice(
    std::shared_ptr<const CudnnApi> api) {
  std::shared_ptr<CudnnTarget> target(new CudnnTarget(std::move(api)));
  const absl::Status status =
      CudnnStatus(target->api(), target->api().create(&target->handle_), "cudnnCreate");
  if (!status.ok()) return status;
  return target;
}

absl::StatusOr<std::shared_ptr<const CudnnTarget>> CudnnTarget::WithProperties(
    std::shared_ptr<const CudnnApi> api, const std::string& json) {
  std::shared_ptr<CudnnTarget> target(new CudnnTarget(std::move(api)));
  absl::Status status;
  target->properties_ =
      Builder(target->api(), CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device properties", &status)
          .Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
               std::span<const char>(json))
          .Finish();
  if (!status.ok()) return status;
  return target;
}

absl::Status RunCudnnPlan(const CudnnTarget& target, const CudnnPlan& plan,
                          std::span<const int64_t> ids, std::span<void* const> pointers,
                          void* workspace, cudaStream_t stream) {
  const CudnnApi& api = target.api();
  if (target.handle() == nullptr) {
    return absl::FailedPreconditionError("the plan is for a device that is not here");
  }
  absl::Status status;
  const CudnnDescriptor tensors =
      Builder(api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the tensors of a run", &status)
          .Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids)
          .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers)
          .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
          .Finish();
  if (!status.ok()) return status;
  status = CudnnStatus(api, api.set_stream(target.handle(), stream), "cudnnSetStream");
  if (!status.ok()) return status;
  return CudnnStatus(api, api.execute(target.handle(), plan.descriptor.get(), tensors.get()),
                     "cudnnBackendExecute");
}

CudnnLayout CudnnLayout::Transposed() const {
  CudnnLayout transposed = *this;
  std::swap(transposed.sizes[2], transposed.sizes[3]);
  std::swap(transposed.strides[2], transposed.strides[3]);
  return transposed;
}

CudnnGraph::Tensor CudnnGraph::Add(const CudnnLayout& layout, cudnnDataType_t type,
                                   int64_t alignment, bool is_passing, bool is_scalar,
                                   bool is_accumulator) {
  const auto id = static_cast<int64_t>(tensors_.size()) + 1;
  Builder builder(target_->api(), CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor", &status_);
  builder.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(layout.sizes))
      .Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(layout.strides))
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
      .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_passing)
      .Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, is_scalar);
  if (is_accumulator) {
    builder.Set(CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE,
                CUDNN_TENSOR_REORDERING_F16x16);
  }
  tensors_.push_back({id, layout, builder.Finish()});
  return &tensors_.back();
}

CudnnGraph::Tensor CudnnGraph::Stored(const CudnnLayout& layout, cudnnDataType_t type,
                                      int64_t alignment) {
  return Add(layout, type, alignment, /*is_passing=*/false, /*is_scalar=*/false);
}

CudnnGraph::Tensor CudnnGraph::Accumulator(const CudnnLayout& layout) {
  return Add(layout, CUDNN_DATA_FLOAT, /*alignment=*/16, /*is_passing=*/false,
             /*is_scalar=*/false, /*is_accumulator=*/true);
}

CudnnGraph::Tensor CudnnGraph::Passing(const CudnnLayout& layout, cudnnDataType_t type) {
  return Add(layout, type, /*alignment=*/16, /*is_passing=*/true, /*is_scalar=*/false);
}

CudnnGraph::Tensor CudnnGraph::Scalar(float value) {
  const Tensor scalar = Add({{1, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_FLOAT, alignof(float),
                            /*is_passing=*/false, /*is_scalar=*/true);
  scalars_.push_back({scalar->id, value});
  return scalar;
}

CudnnGraph::Tensor CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math,
                                         const Operands& operands, const int64_t* axis) {
  Builder function(target_->api(), CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a function", &status_);
  function.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, math);
  if (axis != nullptr) function.Set(CUDNN_ATTR_POINTWISE_AXIS, *axis);
  parts_.push_back(function.Finish());
  Builder operation(target_->api(), CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                    "an elementwise operation", &status_);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts_.back().get())
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, operands.x)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, operands.b)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, operands.t)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, operands.y);
  operations_.push_back(operation.Finish());
  return operands.y;
}

CudnnGraph::Tensor CudnnGraph::Unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
  return Pointwise(mode, CUDNN_DATA_FLOAT, {.x = x, .b = nullptr, .t = nullptr, .y = y});
}

CudnnGraph::Tensor CudnnGraph::Binary(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y) {
  return Pointwise(mode, CUDNN_DATA_FLOAT, {.x = a, .b = b, .t = nullptr, .y = y});
}

CudnnGraph::Tensor CudnnGraph::IsAtLeast(Tensor a, Tensor b, Tensor y) {
  return Pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN,
                   {.x = a, .b = b, .t = nullptr, .y = y});
}

CudnnGraph::Tensor CudnnGraph::Index(Tensor x, int64_t axis, Tensor y) {
  return Pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT,
                   {.x = x, .b = nullptr, .t = nullptr, .y = y}, &axis);
}

CudnnGraph::Tensor CudnnGraph::Select(Tensor condition, Tensor a, Tensor b, Tensor y) {
  return Pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT,
                   {.x = a, .b = b, .t = condition, .y = y});
}

CudnnGraph::Tensor CudnnGraph::Reduce(cudnnReduceTensorOp_t mode, Tensor x, Tensor y) {
  Builder reduction(target_->api(), CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction", &status_);
  reduction.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode)
      .Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  parts_.push_back(reduction.Finish());
  Builder operation(target_->api(), CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                    "a reduction's operation", &status_);
  operation.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, parts_.back().get())
      .Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  operations_.push_back(operation.Finish());
  return y;
}

CudnnGraph::Tensor CudnnGraph::Multiply(Tensor a, Tensor b, Tensor y) {
  Builder product(target_->api(), CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product", &status_);
  product.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  parts_.push_back(product.Finish());
  Builder operation(target_->api(), CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                    "a product's operation", &status_);
  operation.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, parts_.back().get())
      .Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
  operations_.push_back(operation.Finish());
  return y;
}

CudnnGraph::Tensor CudnnGraph::Reshape(Tensor x, Tensor y) {
  Builder operation(target_->api(), CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a new shape",
                    &status_);
  operation.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).Set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  operations_.push_back(operation.Finish());
  return y;
}

std::vector<CudnnDescriptor> CudnnGraph::FindConfigurations(void* graph) {
  const CudnnApi& api = target_->api();
  Builder builder(api, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristic", &status_);
  builder.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target_->handle() == nullptr) {
    builder.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target_->properties());
  }
  const CudnnDescriptor heuristic = builder.Finish();
  const auto get = [&](int64_t wanted, int64_t* count, void** results) {
    if (!status_.ok()) return;
    status_ = CudnnStatus(api,
                          api.get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, wanted, count, results),
                          "ask the heuristic");
  };
  int64_t known = 0, usable = 0;
  get(0, &known, nullptr);
  std::vector<CudnnDescriptor> configurations;
  std::vector<void*> handles;
  for (int64_t i = 0; i < known; ++i) {
    void* configuration = nullptr;
    status_.Update(
        CudnnStatus(api, api.create_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configuration),
                    "create a configuration"));
    configurations.emplace_back(configuration, CudnnDescriptorReleaser(&api));
    handles.push_back(configuration);
  }
  // The second call returns fewer configurations, because cuDNN then omits those that do not work
  // on this machine.
  get(known, &usable, handles.data());
  configurations.resize(usable);
  return configurations;
}

bool CudnnGraph::Repeats(void* configuration) {
  const CudnnApi& api = target_->api();
  void* engine = nullptr;
  if (api.create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  const CudnnDescriptor owner(engine, CudnnDescriptorReleaser(&api));
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes;
  int64_t count = 0;
  if (api.get_attribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        1, &count, &engine) != CUDNN_STATUS_SUCCESS ||
      api.get_attribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                        notes.size(), &count, notes.data()) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  // cuDNN has more notes than this program knows. An unknown note may mean that equal runs give
  // different bits.
  if (count > static_cast<int64_t>(notes.size())) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
  }
  return true;
}

absl::StatusOr<CudnnPlan> CudnnGraph::Plan(bool repeats) {
  const CudnnApi& api = target_->api();
  std::vector<void*> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  Builder builder(api, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph", &status_);
  builder.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              std::span<void* const>(operations));
  if (target_->handle() != nullptr) {
    builder.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target_->handle());
  }
  const CudnnDescriptor graph = builder.Finish();
  const std::vector<CudnnDescriptor> configurations = FindConfigurations(graph.get());
  if (!status_.ok()) return status_;
  absl::Status why = absl::UnimplementedError("it has no kernels for this on this card");
  for (const CudnnDescriptor& configuration : configurations) {
    if (repeats && !Repeats(configuration.get())) {
      why = absl::UnimplementedError("what it has for this does not repeat to the bit");
      continue;
    }
    absl::Status status;
    Builder plan(api, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan", &status);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.get());
    if (target_->handle() != nullptr) {
      plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target_->handle());
    } else {
      plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target_->properties());
    }
    CudnnPlan result{.descriptor = plan.Finish()};
    result.workspace_bytes =
        NumberOf(api, result.descriptor.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                 "ask a plan's workspace", &status);
    if (status.ok()) return result;
    why = status;
  }
  return why;
}

}  // namespace lodestar::cuda
