// SPDX-License-Identifier: Apache-2.0

// Implements CudaDevice's functions for the card itself: memory, streams, events and graphs.
#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/check.h"
#include "kernels/cuda/card_group.h"

namespace lodestar::cuda {
namespace {

constexpr int kBf16Capability = 80;
constexpr size_t kFirstScratchBytes = size_t{4} << 20;
constexpr FusionWords kAttentionWords = {
    .fused = "library", .separate = "own kernels", .what_breaks = ""};

// Returns an even id for an event without a time, and an odd id for a timed event.
kernels::EventId IdOf(int64_t slot, bool is_timed) { return 2 * slot + (is_timed ? 1 : 0); }

std::string DeviceName(int ordinal) { return absl::StrCat("CUDA device ", ordinal); }

absl::StatusOr<int> CountDevices(const std::string& wanted) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return CudaStatus(wanted, error, "cudaGetDeviceCount");
  return count;
}

absl::Status CheckOrdinal(int ordinal) {
  const absl::StatusOr<int> devices = CountDevices(DeviceName(ordinal));
  if (!devices.ok()) return devices.status();
  const int count = *devices;
  if (ordinal >= 0 && ordinal < count) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cuda:", ordinal, " was asked for, but this machine has ",
                                          count, " CUDA devices, cuda:0 to cuda:", count - 1));
}

absl::Status CheckCompute(kernels::DType compute, const cudaDeviceProp& properties) {
  if (compute == kernels::DType::kF32) return absl::OkStatus();
  if (compute != kernels::DType::kBf16) {
    return absl::InvalidArgumentError("a CUDA device computes in fp32 or bf16");
  }
  if (properties.major * 10 + properties.minor >= kBf16Capability) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bf16 needs a card of compute capability 8.0 or later; ", properties.name,
                   " has ", properties.major, ".", properties.minor, "; use fp32"));
}

struct CardMemory {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

// Returns the free and total memory of the current device, or zeros if CUDA fails.
CardMemory MemoryInfo() {
  CardMemory memory;
  if (cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes) != cudaSuccess) return {};
  return memory;
}

absl::Status OutOfMemory(const std::string& device, const char* what, size_t bytes) {
  cudaGetLastError();  // clears the error, which is handled here
  const auto [free_bytes, total_bytes] = MemoryInfo();
  return absl::ResourceExhaustedError(
      absl::StrCat(device, " could not allocate ", bytes, " bytes of ", what, ": ", free_bytes,
                   " of ", total_bytes, " bytes of device memory are free; use a smaller model or ",
                   "micro-batch, bf16 or recomputation"));
}

absl::StatusOr<TuningOrigin> OriginOn(const std::string& device, const cudaDeviceProp& properties) {
  TuningOrigin origin = {.card = properties.name,
                         .compute_capability = properties.major * 10 + properties.minor,
                         .cublaslt_version = cublasLtGetVersion()};
  cudaError_t error = cudaDriverGetVersion(&origin.driver_version);
  if (error != cudaSuccess) return CudaStatus(device, error, "cudaDriverGetVersion");
  error = cudaRuntimeGetVersion(&origin.runtime_version);
  if (error != cudaSuccess) return CudaStatus(device, error, "cudaRuntimeGetVersion");
  return origin;
}

}  // namespace

CudaDevice::CudaDevice(const factory::CudaPluginOptions& options, CudaLibraries libraries,
                       const std::string& device, const TuningOrigin& origin)
    : ordinal_(options.ordinal),
      compute_(options.compute),
      is_repeatable_(options.is_repeatable),
      load_nccl_(libraries.load_nccl),
      errors_(device),
      tuning_(options.tuning, origin),
      fusion_(options.fusion, options.compute, &tuning_, &errors_),
      attention_(origin.compute_capability),
      // With kNever the library is never loaded, because loading it takes time.
      library_attention_(options.fusion == factory::FusionPolicy::kNever
                             ? nullptr
                             : std::move(libraries.load_attention)),
      attention_choice_(options.fusion, options.compute, &tuning_, &errors_, kAttentionWords) {}

absl::StatusOr<int> CudaDevice::Count() { return CountDevices("CUDA"); }

absl::StatusOr<std::unique_ptr<kernels::Device>> CudaDevice::Create(
    const factory::CudaPluginOptions& options, CudaLibraries libraries) {
  if (absl::Status status = CheckOrdinal(options.ordinal); !status.ok()) return status;
  const std::string ordinal_name = DeviceName(options.ordinal);
  cudaDeviceProp properties = {};
  cudaError_t error = cudaSetDevice(options.ordinal);
  if (error != cudaSuccess) return CudaStatus(ordinal_name, error, "cudaSetDevice");
  error = cudaGetDeviceProperties(&properties, options.ordinal);
  if (error != cudaSuccess) return CudaStatus(ordinal_name, error, "cudaGetDeviceProperties");
  if (absl::Status status = CheckCompute(options.compute, properties); !status.ok()) return status;

  const absl::StatusOr<TuningOrigin> origin = OriginOn(ordinal_name, properties);
  if (!origin.ok()) return origin.status();
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(options, std::move(libraries),
                     absl::StrCat(ordinal_name, " (", properties.name, ")"), *origin));
  device->capabilities_ = {.name = properties.name,
                           .compute = options.compute,
                           .has_bf16 = origin->compute_capability >= kBf16Capability,
                           .memory_is_host = false,
                           .memory_bytes = properties.totalGlobalMem};
  for (Stream& stream : device->streams_) {
    error = Make(&stream, [](cudaStream_t* handle) {
      return cudaStreamCreateWithFlags(handle, cudaStreamNonBlocking);
    });
    if (!device->Check(error, "cudaStreamCreateWithFlags")) return device->errors_.first();
  }
  // cudaEventBlockingSync lets threads sleep while they wait for an event. If they spun instead,
  // fewer cores would be left for reading training data.
  if (!device->events_.Create(cudaEventDisableTiming | cudaEventBlockingSync, &device->errors_) ||
      !device->timed_events_.Create(cudaEventBlockingSync, &device->errors_)) {
    return device->errors_.first();
  }
  if (!device->direct_copies_.Create(&device->errors_)) return device->errors_.first();
  absl::StatusOr<std::unique_ptr<MatMulEngine>> matmul = MatMulEngine::Create(
      origin->compute_capability, options.fusion == factory::FusionPolicy::kMeasure,
      &device->tuning_, &device->errors_);
  if (!matmul.ok()) return matmul.status();
  device->matmul_ = std::move(*matmul);
  return device;
}

CudaDevice::~CudaDevice() {
  cudaSetDevice(ordinal_);
  for (Stream& stream : streams_) {
    if (stream != nullptr) cudaStreamSynchronize(stream.get());
  }
}

std::string CudaDevice::DescribeChoices() const {
  std::vector<std::string> parts = {fusion_.Describe(), matmul_->Describe(),
                                    attention_choice_.Describe(), library_attention_.Describe()};
  std::erase(parts, "");
  return absl::StrJoin(parts, "\n");
}

cudaStream_t CudaDevice::On(kernels::StreamKind stream) {
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  return streams_[static_cast<int>(stream)].get();
}

absl::StatusOr<void*> CudaDevice::Allocate(size_t bytes) {
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
  if (error == cudaSuccess) return memory;
  if (error != cudaErrorMemoryAllocation) return CudaStatus(errors_.device(), error, "cudaMalloc");
  return OutOfMemory(errors_.device(), "device memory", bytes);
}

void CudaDevice::Release(void* memory) { Check(cudaFree(memory), "cudaFree"); }

size_t CudaDevice::FreeMemoryBytes() {
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  return MemoryInfo().free_bytes;
}

absl::StatusOr<void*> CudaDevice::AllocateHost(size_t bytes) {
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocDefault);
  if (error == cudaSuccess) return memory;
  if (error != cudaErrorMemoryAllocation) {
    return CudaStatus(errors_.device(), error, "cudaHostAlloc");
  }
  return OutOfMemory(errors_.device(), "pinned host memory", bytes);
}

void CudaDevice::ReleaseHost(void* memory) { Check(cudaFreeHost(memory), "cudaFreeHost"); }

absl::Status CudaDevice::RegisterHostMemory(void* memory, size_t bytes) {
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  // The memory is registered for all cards, because another card of this process may also copy to
  // and from it.
  const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::Status(CudaStatus(errors_.device(), error, "cudaHostRegister").code(),
                      absl::StrCat(errors_.device(), " does not take ", bytes,
                                   " bytes of host memory for its copies (cudaHostRegister: ",
                                   cudaGetErrorName(error), ", ", cudaGetErrorString(error),
                                   "); the limit of locked memory (ulimit -l) may be too low"));
}

void CudaDevice::UnregisterHostMemory(void* memory) {
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  Check(cudaHostUnregister(memory), "cudaHostUnregister");
}

absl::Status CudaDevice::CopyNow(void* destination, const void* source, size_t bytes,
                                 kernels::StreamKind stream, absl::FunctionRef<void()> meanwhile) {
  LODESTAR_CHECK(stream != kernels::StreamKind::kCompute);
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  direct_copies_.Run(destination, source, bytes, stream == kernels::StreamKind::kDeviceToHost,
                     meanwhile);
  return errors_.first();
}

kernels::EventId CudaDevice::Record(kernels::StreamKind stream) {
  LODESTAR_CHECK(!is_recording_) << "an event in a graph cannot be waited for";
  const EventRing::Slot slot = events_.Next(static_cast<int>(stream));
  Check(cudaEventRecord(slot.event, On(stream)), "cudaEventRecord");
  return IdOf(slot.id, false);
}

kernels::EventId CudaDevice::RecordTimed(kernels::StreamKind stream) {
  LODESTAR_CHECK(!is_recording_) << "an event in a graph cannot be waited for";
  const EventRing::Slot slot = timed_events_.Next(static_cast<int>(stream));
  Check(cudaEventRecord(slot.event, On(stream)), "cudaEventRecord");
  return IdOf(slot.id, true);
}

void CudaDevice::Wait(kernels::StreamKind stream, kernels::EventId event) {
  const EventRing& ring = event % 2 != 0 ? timed_events_ : events_;
  Check(cudaStreamWaitEvent(On(stream), ring.Get(event / 2)), "cudaStreamWaitEvent");
}

absl::Status CudaDevice::Synchronize(kernels::EventId event) {
  const EventRing& ring = event % 2 != 0 ? timed_events_ : events_;
  Check(cudaSetDevice(ordinal_), "cudaSetDevice");
  Check(cudaEventSynchronize(ring.Get(event / 2)), "cudaEventSynchronize");
  return errors_.first();
}

absl::StatusOr<double> CudaDevice::SecondsBetween(kernels::EventId from, kernels::EventId to) {
  LODESTAR_CHECK(from % 2 != 0 && to % 2 != 0) << "only events of RecordTimed() have a time";
  if (!timed_events_.IsCurrent(from / 2) || !timed_events_.IsCurrent(to / 2)) {
    return absl::FailedPreconditionError(
        "a timed event was asked for too late: its slot has been used again");
  }
  for (const kernels::EventId event : {from, to}) {
    if (absl::Status status = Synchronize(event); !status.ok()) return status;
  }
  float milliseconds = 0.0f;
  if (!Check(cudaEventElapsedTime(&milliseconds, timed_events_.Get(from / 2),
                                  timed_events_.Get(to / 2)),
             "cudaEventElapsedTime")) {
    return errors_.first();
  }
  return milliseconds / 1e3;
}

absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> CudaDevice::MakeGroup(
    absl::Span<kernels::Device* const> members) {
  LODESTAR_CHECK(!members.empty() && members.front() == this);
  std::vector<GroupCard> cards;
  for (kernels::Device* member : members) {
    auto* const card = static_cast<CudaDevice*>(member);
    cards.push_back({card->ordinal_, card->Compute(), &card->errors_});
  }
  return CardGroup::Create(cards, load_nccl_);
}

void CudaDevice::BeginGraph() {
  LODESTAR_CHECK(!is_recording_);
  is_recording_ = Check(cudaStreamBeginCapture(Compute(), cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture");
}

absl::StatusOr<kernels::GraphId> CudaDevice::EndGraph() {
  if (!is_recording_) return errors_.first();  // false if BeginGraph() failed
  is_recording_ = false;
  Graph graph;
  GraphExecutable executable;
  if (!Check(Make(&graph,
                  [&](cudaGraph_t* handle) { return cudaStreamEndCapture(Compute(), handle); }),
             "cudaStreamEndCapture") ||
      !Check(
          Make(&executable,
               [&](cudaGraphExec_t* handle) { return cudaGraphInstantiate(handle, graph.get()); }),
          "cudaGraphInstantiate")) {
    return errors_.first();
  }
  if (absl::Status status = errors_.first(); !status.ok()) return status;
  graphs_.push_back(std::move(executable));
  return static_cast<kernels::GraphId>(graphs_.size()) - 1;
}

void CudaDevice::LaunchGraph(kernels::GraphId graph) {
  LODESTAR_CHECK(graph >= 0 && graph < static_cast<kernels::GraphId>(graphs_.size()));
  Check(cudaGraphLaunch(graphs_[graph].get(), Compute()), "cudaGraphLaunch");
}

void* CudaDevice::Scratch(size_t bytes) {
  const absl::StatusOr<void*> memory = TryScratch(bytes);
  if (memory.ok()) return *memory;
  errors_.Note(memory.status());
  return nullptr;
}

absl::StatusOr<void*> CudaDevice::TryScratch(size_t bytes) {
  if (!scratch_.empty() && bytes <= scratch_bytes_) return scratch_.back().get();
  if (is_recording_) {
    return absl::FailedPreconditionError(absl::StrCat(
        errors_.device(), ": a graph was recorded before its operations ran once: ", bytes,
        " bytes of scratch memory are needed, ", scratch_bytes_, " are there"));
  }
  const size_t grown = std::max({bytes, 2 * scratch_bytes_, kFirstScratchBytes});
  DeviceMemory memory;
  const cudaError_t error = Make(&memory, [&](void** handle) { return cudaMalloc(handle, grown); });
  if (error == cudaErrorMemoryAllocation) {
    return OutOfMemory(errors_.device(), "scratch memory", grown);
  }
  if (error != cudaSuccess) return CudaStatus(errors_.device(), error, "cudaMalloc");
  scratch_.push_back(std::move(memory));
  scratch_bytes_ = grown;
  return scratch_.back().get();
}

}  // namespace lodestar::cuda
