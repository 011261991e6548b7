// SPDX-License-Identifier: Apache-2.0

#ifdef LODESTAR_HAS_CUDNN
#include "kernels/cuda/testing/emulated_cudnn.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/check.h"

namespace lodestar::cuda {
namespace {

constexpr cudnnStatus_t kBadParameter = CUDNN_STATUS_BAD_PARAM;
int num_runs = 0;

struct Descriptor;
using Shared = std::shared_ptr<Descriptor>;

struct Attribute {
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<Shared> descriptors;  // kept alive, as in cuDNN
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;

  bool Has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  template <typename T>
  T Get(cudnnBackendAttributeName_t name, int64_t index = 0) const {
    const Attribute& attribute = attributes.at(name);
    LODESTAR_CHECK(attribute.bytes.size() == attribute.count * sizeof(T));
    T value;
    std::memcpy(&value, attribute.bytes.data() + index * sizeof(T), sizeof(T));
    return value;
  }
  const Descriptor& Of(cudnnBackendAttributeName_t name) const {
    return *attributes.at(name).descriptors.at(0);
  }
};

std::map<void*, Shared>& Registry() {
  static auto* const registry = new std::map<void*, Shared>;
  return *registry;
}

size_t BytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
      return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_CHAR:
      return sizeof(char);
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
      return sizeof(void*);
    default:
      return sizeof(int);  // all others are enumerations
  }
}

using Sizes = std::array<int64_t, 4>;

// The properties of a tensor of the graph.
struct Tensor {
  explicit Tensor(const Descriptor& from) {
    LODESTAR_CHECK(from.is_final && from.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    id = from.Get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    type = from.Get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    for (int i = 0; i < 4; ++i) {
      sizes[i] = from.Get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
      strides[i] = from.Get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    alignment = from.Get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    is_stored = !from.Get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    is_accumulator = from.Has(CUDNN_ATTR_TENSOR_REORDERING_MODE);
  }
  int64_t count() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
  Sizes IndexOf(int64_t element) const {
    Sizes index;
    for (int i = 3; i >= 0; --i) {
      index[i] = element % sizes[i];
      element /= sizes[i];
    }
    return index;
  }
  // Returns the offset in memory, in elements.
  int64_t OffsetOf(const Sizes& index) const {
    int64_t offset = 0;
    for (int i = 0; i < 4; ++i) offset += index[i] * strides[i];
    return offset;
  }

  int64_t id;
  cudnnDataType_t type;
  Sizes sizes, strides;
  int64_t alignment;
  bool is_stored;
  bool is_accumulator;  // sums are added to the values in memory
};

// The values of a tensor. They are ordered by index, and the last index changes fastest.
struct Values {
  Sizes sizes;
  std::vector<double> at;

  // Returns the value at `index`. Along dimensions of size 1, the value is repeated.
  double Of(const Sizes& index) const {
    int64_t element = 0;
    for (int i = 0; i < 4; ++i) element = element * sizes[i] + (sizes[i] == 1 ? 0 : index[i]);
    return at[element];
  }
};

double LoadElement(const void* memory, int64_t offset, cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return static_cast<const float*>(memory)[offset];
  LODESTAR_CHECK(type == CUDNN_DATA_BFLOAT16);
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(memory)[offset]} << 16);
}

void StoreElement(void* memory, int64_t offset, cudnnDataType_t type, double value) {
  if (type == CUDNN_DATA_FLOAT) {
    static_cast<float*>(memory)[offset] = static_cast<float>(value);
    return;
  }
  LODESTAR_CHECK(type == CUDNN_DATA_BFLOAT16);
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  static_cast<uint16_t*>(memory)[offset] =
      static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// One run of a graph.
class Run {
 public:
  explicit Run(std::map<int64_t, void*> pointers) : pointers_(std::move(pointers)) {}

  void Operate(const Descriptor& operation) {
    LODESTAR_CHECK(operation.is_final);
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return Pointwise(operation);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return Reduce(operation);
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return Multiply(operation);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return Reshape(operation);
      default:
        LODESTAR_CHECK(false) << "an operation of type " << operation.type << " is not known";
    }
  }

 private:
  const Values& Read(const Descriptor& description) {
    const Tensor tensor(description);
    if (const auto it = values_.find(tensor.id); it != values_.end()) return it->second;
    LODESTAR_CHECK(tensor.is_stored) << "tensor " << tensor.id << " is read before it is computed";
    const void* const memory = MemoryOf(tensor);
    Values values{tensor.sizes, {}};
    for (int64_t i = 0; i < tensor.count(); ++i) {
      values.at.push_back(LoadElement(memory, tensor.OffsetOf(tensor.IndexOf(i)), tensor.type));
    }
    return values_[tensor.id] = std::move(values);
  }

  // Sets all elements of a tensor. value(index) returns the value of an element.
  void Write(const Descriptor& description, const std::function<double(const Sizes&)>& value) {
    const Tensor tensor(description);
    LODESTAR_CHECK(!values_.contains(tensor.id)) << "tensor " << tensor.id << " is set twice";
    Values values{tensor.sizes, {}};
    for (int64_t i = 0; i < tensor.count(); ++i) values.at.push_back(value(tensor.IndexOf(i)));
    if (tensor.is_stored) {
      void* const memory = MemoryOf(tensor);
      for (int64_t i = 0; i < tensor.count(); ++i) {
        if (tensor.is_accumulator) {
          values.at[i] += LoadElement(memory, tensor.OffsetOf(tensor.IndexOf(i)), tensor.type);
        }
        StoreElement(memory, tensor.OffsetOf(tensor.IndexOf(i)), tensor.type, values.at[i]);
      }
    }
    values_[tensor.id] = std::move(values);
  }

  void* MemoryOf(const Tensor& tensor) {
    const auto it = pointers_.find(tensor.id);
    LODESTAR_CHECK(it != pointers_.end()) << "nobody said where tensor " << tensor.id << " is";
    LODESTAR_CHECK(reinterpret_cast<uintptr_t>(it->second) % tensor.alignment == 0);
    return it->second;
  }

  void Pointwise(const Descriptor& operation) {
    const Descriptor& function = operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = function.Get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const Descriptor& y = operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      const auto axis = function.Get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
      return Write(y, [&](const Sizes& index) { return static_cast<double>(index[axis]); });
    }
    const auto operand = [&](cudnnBackendAttributeName_t name) -> const Values* {
      return operation.Has(name) ? &Read(operation.Of(name)) : nullptr;
    };
    const Values& x = *operand(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const Values* const b = operand(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const Values* const t = operand(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    Write(y, [&](const Sizes& index) -> double {
      const double a = x.Of(index);
      switch (mode) {
        case CUDNN_POINTWISE_IDENTITY:
          return a;
        case CUDNN_POINTWISE_EXP:
          return std::exp(a);
        case CUDNN_POINTWISE_LOG:
          return std::log(a);
        case CUDNN_POINTWISE_ADD:
          return a + b->Of(index);
        case CUDNN_POINTWISE_SUB:
          return a - b->Of(index);
        case CUDNN_POINTWISE_MUL:
          return a * b->Of(index);
        case CUDNN_POINTWISE_DIV:
          return a / b->Of(index);
        case CUDNN_POINTWISE_CMP_GE:
          return a >= b->Of(index) ? 1.0 : 0.0;
        case CUDNN_POINTWISE_BINARY_SELECT:
          return t->Of(index) != 0.0 ? a : b->Of(index);
        default:
          LODESTAR_CHECK(false) << "pointwise mode " << mode << " is not known";
      }
      return 0.0;
    });
  }

  void Reduce(const Descriptor& operation) {
    const auto mode = operation.Of(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                          .Get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    LODESTAR_CHECK(mode == CUDNN_REDUCE_TENSOR_MAX || mode == CUDNN_REDUCE_TENSOR_ADD);
    const Values& x = Read(operation.Of(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    const Descriptor& description = operation.Of(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const Tensor y(description);
    Write(description, [&](const Sizes& index) {
      double result =
          mode == CUDNN_REDUCE_TENSOR_ADD ? 0.0 : -std::numeric_limits<double>::infinity();
      Sizes last;
      for (int i = 0; i < 4; ++i) last[i] = y.sizes[i] == 1 ? x.sizes[i] - 1 : index[i];
      Sizes first;
      for (int i = 0; i < 4; ++i) first[i] = y.sizes[i] == 1 ? 0 : index[i];
      Sizes at = first;
      for (at[0] = first[0]; at[0] <= last[0]; ++at[0]) {
        for (at[1] = first[1]; at[1] <= last[1]; ++at[1]) {
          for (at[2] = first[2]; at[2] <= last[2]; ++at[2]) {
            for (at[3] = first[3]; at[3] <= last[3]; ++at[3]) {
              const double value = x.Of(at);
              result = mode == CUDNN_REDUCE_TENSOR_ADD ? result + value : std::max(result, value);
            }
          }
        }
      }
      return result;
    });
  }

  void Multiply(const Descriptor& operation) {
    const Values& a = Read(operation.Of(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const Values& b = Read(operation.Of(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    LODESTAR_CHECK(a.sizes[3] == b.sizes[2]) << "matrices that do not fit";
    Write(operation.Of(CUDNN_ATTR_OPERATION_MATMUL_CDESC), [&](const Sizes& index) {
      double sum = 0.0;
      for (int64_t k = 0; k < a.sizes[3]; ++k) {
        sum += a.Of({index[0], index[1], index[2], k}) * b.Of({index[0], index[1], k, index[3]});
      }
      return sum;
    });
  }

  // Changes the layout of a tensor. The elements stay at the same addresses.
  void Reshape(const Descriptor& operation) {
    const Descriptor& from = operation.Of(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    const Descriptor& to = operation.Of(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    const Tensor x(from), y(to);
    const Values& values = Read(from);
    std::map<int64_t, double> by_offset;
    for (int64_t i = 0; i < x.count(); ++i) by_offset[x.OffsetOf(x.IndexOf(i))] = values.at[i];
    Write(to, [&](const Sizes& index) { return by_offset.at(y.OffsetOf(index)); });
  }

  const std::map<int64_t, void*> pointers_;
  std::map<int64_t, Values> values_;
};

cudnnStatus_t Create(cudnnHandle_t* handle) {
  static int handles = 0;
  *handle = reinterpret_cast<cudnnHandle_t>(&handles);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t Destroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t SetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* ErrorString(cudnnStatus_t) { return "emulated"; }
void LastErrorString(char* message, size_t size) {
  if (size > 0) message[0] = '\0';
}

cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type,
                               cudnnBackendDescriptor_t* descriptor) {
  const auto made = std::make_shared<Descriptor>(Descriptor{.type = type, .attributes = {}});
  Registry()[made.get()] = made;
  *descriptor = made.get();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t DestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return Registry().erase(descriptor) == 1 ? CUDNN_STATUS_SUCCESS : kBadParameter;
}

cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
  Registry().at(descriptor)->is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const Shared& self = Registry().at(descriptor);
  if (self->is_final) return kBadParameter;
  Attribute attribute{.count = count, .bytes = {}, .descriptors = {}};
  const auto* const bytes = static_cast<const char*>(values);
  attribute.bytes.assign(bytes, bytes + count * BytesOf(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      const auto it = Registry().find(static_cast<void* const*>(values)[i]);
      if (it == Registry().end() || !it->second->is_final) return kBadParameter;
      attribute.descriptors.push_back(it->second);
    }
  }
  self->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t, int64_t wanted, int64_t* count,
                           void* values) {
  const Shared& self = Registry().at(descriptor);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      *count = 1;
      if (wanted == 0) return CUDNN_STATUS_SUCCESS;
      Descriptor& configuration = *Registry().at(static_cast<void**>(values)[0]);
      configuration.attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
          self->attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      configuration.is_final = true;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *count = 0;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *count = 1;
      *static_cast<int64_t*>(values) = kEmulatedCudnnWorkspaceBytes;
      return CUDNN_STATUS_SUCCESS;
    default:
      return kBadParameter;
  }
}

cudnnStatus_t Execute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t variant_pack) {
  ++num_runs;
  const Descriptor& pack = *Registry().at(variant_pack);
  std::map<int64_t, void*> pointers;
  for (int64_t i = 0; i < pack.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count; ++i) {
    pointers[pack.Get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] =
        pack.Get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
  }
  const Descriptor& configuration =
      Registry().at(plan)->Of(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Descriptor& graph = configuration.Of(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  Run run(std::move(pointers));
  auto* const workspace = pack.Get<char*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  for (const Shared& operation : graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    std::memset(workspace, 0xff, kEmulatedCudnnWorkspaceBytes);
    run.Operate(*operation);
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

int num_cudnn_runs() { return num_runs; }

template <size_t version>
std::shared_ptr<const CudnnApi> EmulatedCudnn() {
  return std::make_shared<const CudnnApi>(CudnnApi{.get_version = [] { return version; },
                                                   .get_error_string = ErrorString,
                                                   .get_last_error_string = LastErrorString,
                                                   .create = Create,
                                                   .destroy = Destroy,
                                                   .set_stream = SetStream,
                                                   .create_descriptor = CreateDescriptor,
                                                   .destroy_descriptor = DestroyDescriptor,
                                                   .finalize = Finalize,
                                                   .set_attribute = SetAttribute,
                                                   .get_attribute = GetAttribute,
                                                   .execute = Execute});
}

template std::shared_ptr<const CudnnApi> EmulatedCudnn<91500>();
template std::shared_ptr<const CudnnApi> EmulatedCudnn<91600>();

}  // namespace lodestar::cuda

#endif
