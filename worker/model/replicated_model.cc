// SPDX-License-Identifier: Apache-2.0

#include "worker/model/replicated_model.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

// Maximum number of blocks whose gradients are still being transferred while the first device
// computes the next block.
constexpr size_t kBlocksUnderWay = 1;

kernels::Buf BlockOf(kernels::Buf vector, const params::Layout& layout, int block) {
  const params::ElementRange range = layout.block(block);
  return vector.Slice(range.begin, range.size());
}

// The gate of the first device. It sends the weights to the other devices as they arrive.
class SendingGate final : public WeightsGate {
 public:
  // A null `gate` means that all weights have arrived.
  SendingGate(Model* model, WeightsGate* gate, kernels::DeviceGroup* group)
      : model_(model), gate_(gate), group_(group), is_sent_(model->layout().num_blocks()) {}

  absl::Status WaitForBlock(int block) override {
    if (is_sent_[block]) return absl::OkStatus();
    if (gate_ != nullptr) RETURN_IF_ERROR(gate_->WaitForBlock(block));
    ASSIGN_OR_RETURN(last_,
                     group_->Broadcast(0, BlockOf(model_->parameters(), model_->layout(), block)));
    is_sent_[block] = true;
    return absl::OkStatus();
  }

  // Waits until all weights were sent, because later work may overwrite them.
  void Finish() {
    if (last_.has_value()) group_->Await(0, *last_);
  }

 private:
  Model* const model_;
  WeightsGate* const gate_;
  kernels::DeviceGroup* const group_;
  // True for each block that has been sent.
  std::vector<bool> is_sent_;
  std::optional<int64_t> last_;
};

class ReceivingGate final : public WeightsGate {
 public:
  ReceivingGate(Model* model, int member, kernels::DeviceGroup* group)
      : model_(model), member_(member), group_(group), received_(model->layout().num_blocks()) {
    group->Begin(member);
  }

  // Starts to receive all blocks. Must be called before WaitForBlock().
  absl::Status ReceiveAll() {
    for (int block = 0; block < model_->layout().num_blocks(); ++block) {
      RETURN_IF_ERROR(Receive(block));
    }
    return absl::OkStatus();
  }

  absl::Status WaitForBlock(int block) override {
    if (!received_[block].has_value()) RETURN_IF_ERROR(Receive(block));
    group_->Await(member_, *received_[block]);
    return absl::OkStatus();
  }

 private:
  absl::Status Receive(int block) {
    ASSIGN_OR_RETURN(
        received_[block],
        group_->Broadcast(member_, BlockOf(model_->parameters(), model_->layout(), block)));
    return absl::OkStatus();
  }

  Model* const model_;
  const int member_;
  kernels::DeviceGroup* const group_;
  // For each block: number of the operation of `group_` that receives it. Not set means that the
  // block is not being received.
  std::vector<std::optional<int64_t>> received_;
};

// The sink of the first device. It reports a block as ready once the gradients of the other devices
// have been added to it.
class SummingSink final : public GradientSink {
 public:
  SummingSink(Model* model, GradientSink* sink, kernels::DeviceGroup* group)
      : model_(model), sink_(sink), group_(group) {}

  void BackwardBegins() override {
    if (sink_ != nullptr) sink_->BackwardBegins();
  }

  absl::Status BlockReady(int block) override {
    ASSIGN_OR_RETURN(const int64_t sum,
                     group_->Reduce(0, BlockOf(model_->gradients(), model_->layout(), block)));
    under_way_.push_back({block, sum});
    return AwaitAllBut(kBlocksUnderWay);
  }

  absl::Status Finish() { return AwaitAllBut(0); }

 private:
  struct Sum {
    int block = 0;
    int64_t operation = 0;
  };

  absl::Status AwaitAllBut(size_t count) {
    while (under_way_.size() > count) {
      const Sum sum = under_way_.front();
      under_way_.pop_front();
      group_->Await(0, sum.operation);
      if (sink_ != nullptr) RETURN_IF_ERROR(sink_->BlockReady(sum.block));
    }
    return absl::OkStatus();
  }

  Model* const model_;
  GradientSink* const sink_;
  kernels::DeviceGroup* const group_;
  std::deque<Sum> under_way_;
};

class GivingSink final : public GradientSink {
 public:
  GivingSink(Model* model, int member, kernels::DeviceGroup* group)
      : model_(model), member_(member), group_(group) {}

  absl::Status BlockReady(int block) override {
    ASSIGN_OR_RETURN(
        last_, group_->Reduce(member_, BlockOf(model_->gradients(), model_->layout(), block)));
    return absl::OkStatus();
  }

  // Waits until the group has read all gradients of this device, because later work may overwrite
  // them.
  void Finish() {
    if (last_.has_value()) group_->Await(member_, *last_);
  }

 private:
  Model* const model_;
  const int member_;
  kernels::DeviceGroup* const group_;
  std::optional<int64_t> last_;
};

absl::Status PassAllBlocks(const params::Layout& layout, WeightsGate* gate) {
  for (int block = 0; block < layout.num_blocks(); ++block) {
    RETURN_IF_ERROR(gate->WaitForBlock(block));
  }
  return absl::OkStatus();
}

absl::Status ReportAllBlocks(const params::Layout& layout, GradientSink* sink) {
  for (int block = layout.num_blocks() - 1; block >= 0; --block) {
    RETURN_IF_ERROR(sink->BlockReady(block));
  }
  return absl::OkStatus();
}

void Add(const BatchResult& part, BatchResult* whole) {
  whole->loss_sum += part.loss_sum;
  whole->num_correct += part.num_correct;
  whole->num_predictions += part.num_predictions;
}

// Copies the values of samples [begin, begin + samples). The values of each sample are contiguous.
template <typename T>
void CopyPart(const std::vector<T>& from, const data::HostBatch& batch, int64_t begin,
              int64_t samples, std::vector<T>* to) {
  const auto each = static_cast<int64_t>(from.size()) / batch.num_samples;
  to->assign(from.begin() + begin * each, from.begin() + (begin + samples) * each);
}

}  // namespace

ReplicatedModel::ReplicatedModel(std::vector<std::unique_ptr<Model>> replicas,
                                 const kernels::DeviceSet* devices)
    : replicas_(std::move(replicas)),
      devices_(devices),
      group_(devices->group.get()),
      parts_(replicas_.size()) {
  LODESTAR_CHECK(replicas_.size() >= 2 && group_->size() == static_cast<int>(replicas_.size()));
}

absl::StatusOr<BatchResult> ReplicatedModel::TrainStep(const data::HostBatch& batch,
                                                       WeightsGate* gate, GradientSink* sink) {
  return RunOnAll(batch, [&](int member, const data::HostBatch& part) {
    return member == 0 ? TrainFirst(part, gate, sink)
                       : TrainOther(member, part, /*weights_are_there=*/gate == nullptr);
  });
}

absl::StatusOr<BatchResult> ReplicatedModel::Evaluate(const data::HostBatch& batch,
                                                      WeightsGate* gate) {
  return RunOnAll(batch, [&](int member, const data::HostBatch& part) {
    return member == 0 ? EvaluateFirst(part, gate)
                       : EvaluateOther(member, part, /*weights_are_there=*/gate == nullptr);
  });
}

absl::StatusOr<BatchResult> ReplicatedModel::RunOnAll(const data::HostBatch& batch,
                                                      const Step& step) {
  // Returns the error that Evaluate() has for an empty batch.
  if (batch.num_samples < 1) return first().Evaluate(batch, /*gate=*/nullptr);
  Split(batch);
  group_->Reset();
  std::vector<absl::StatusOr<BatchResult>> results(replicas_.size());
  const auto run = [&](int member) {
    results[member] = step(member, parts_[member]);
    if (!results[member].ok()) group_->Fail(results[member].status());
  };
  std::vector<std::thread> others;
  for (int member = 1; member < static_cast<int>(replicas_.size()); ++member) {
    others.emplace_back(run, member);
  }
  run(0);
  for (std::thread& other : others) other.join();
  BatchResult whole;
  for (const absl::StatusOr<BatchResult>& result : results) {
    RETURN_IF_ERROR(result.status());
    Add(*result, &whole);
  }
  return whole;
}

void ReplicatedModel::Split(const data::HostBatch& batch) {
  const auto count = static_cast<int64_t>(parts_.size());
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t samples = batch.num_samples / count + (i < batch.num_samples % count ? 1 : 0);
    data::HostBatch& part = parts_[i];
    part.num_samples = samples;
    part.first_position = batch.first_position + begin;
    part.mean_over = batch.MeanOver();
    CopyPart(batch.tokens, batch, begin, samples, &part.tokens);
    CopyPart(batch.features, batch, begin, samples, &part.features);
    CopyPart(batch.targets, batch, begin, samples, &part.targets);
    begin += samples;
  }
}

absl::StatusOr<BatchResult> ReplicatedModel::TrainFirst(const data::HostBatch& part,
                                                        WeightsGate* gate, GradientSink* sink) {
  SendingGate sending(&first(), gate, group_);
  SummingSink summing(&first(), sink, group_);
  if (gate == nullptr) RETURN_IF_ERROR(PassAllBlocks(layout(), &sending));
  ASSIGN_OR_RETURN(const BatchResult result,
                   first().TrainStep(part, gate == nullptr ? nullptr : &sending, &summing));
  RETURN_IF_ERROR(summing.Finish());
  sending.Finish();
  return result;
}

absl::StatusOr<BatchResult> ReplicatedModel::TrainOther(int member, const data::HostBatch& part,
                                                        bool weights_are_there) {
  Model& replica = *replicas_[member];
  ReceivingGate receiving(&replica, member, group_);
  GivingSink giving(&replica, member, group_);
  if (weights_are_there) RETURN_IF_ERROR(receiving.ReceiveAll());
  BatchResult result;
  if (part.num_samples > 0) {
    ASSIGN_OR_RETURN(result, replica.TrainStep(part, &receiving, &giving));
  } else {
    RETURN_IF_ERROR(PassAllBlocks(layout(), &receiving));
    devices_->devices[member]->Fill(replica.gradients(), 0.0);
    RETURN_IF_ERROR(ReportAllBlocks(layout(), &giving));
  }
  giving.Finish();
  return result;
}

absl::StatusOr<BatchResult> ReplicatedModel::EvaluateFirst(const data::HostBatch& part,
                                                           WeightsGate* gate) {
  SendingGate sending(&first(), gate, group_);
  if (gate == nullptr) RETURN_IF_ERROR(PassAllBlocks(layout(), &sending));
  ASSIGN_OR_RETURN(const BatchResult result,
                   first().Evaluate(part, gate == nullptr ? nullptr : &sending));
  sending.Finish();
  return result;
}

absl::StatusOr<BatchResult> ReplicatedModel::EvaluateOther(int member, const data::HostBatch& part,
                                                           bool weights_are_there) {
  ReceivingGate receiving(replicas_[member].get(), member, group_);
  if (weights_are_there) RETURN_IF_ERROR(receiving.ReceiveAll());
  if (part.num_samples > 0) return replicas_[member]->Evaluate(part, &receiving);
  RETURN_IF_ERROR(PassAllBlocks(layout(), &receiving));
  return BatchResult{};
}

}  // namespace lodestar::model
