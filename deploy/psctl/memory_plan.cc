// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/params/shard_plan.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/text_table.h"
#include "kernels/factory/device_factory.h"
#include "kernels/planned_card.h"
#include "worker/model/model_memory.h"
#include "worker/trainer/round_runner_factory.h"

namespace lodestar::psctl {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

absl::string_view DTypeFlag(kernels::DType compute) {
  return compute == kernels::DType::kBf16 ? "bf16" : "fp32";
}

// Appends to `workers` the memory of a worker for each kind of recomputation. A kind that needs no
// less memory per sample than the kinds before it is left out.
absl::Status AddWorkers(const job::JobSpec& job, const params::Layout& layout,
                        kernels::Device* device, std::vector<WorkerMemory>& workers) {
  const kernels::DeviceCapabilities& has = device->capabilities();
  const int64_t runner_bytes = trainer::RunnerDeviceBytes(job, layout, has.memory_is_host);
  const int64_t pinned_bytes =
      has.memory_is_host ? 0 : trainer::RunnerPinnedBytes(job, layout, /*keeps_residual=*/false);
  int64_t least_per_sample = std::numeric_limits<int64_t>::max();
  for (const model::Recompute recompute :
       {model::Recompute::kNone, model::Recompute::kGelu, model::Recompute::kBlock}) {
    ASSIGN_OR_RETURN(const model::ModelMemory memory,
                     model::EstimateModelMemory(
                         {.spec = job.model, .recompute = recompute, .layout = layout}, device));
    if (memory.bytes_per_sample >= least_per_sample) continue;
    least_per_sample = memory.bytes_per_sample;
    WorkerMemory worker = {.device = has.memory_is_host ? "cpu" : "card",
                           .dtype = std::string(DTypeFlag(has.compute)),
                           .recompute = std::string(model::RecomputeName(recompute)),
                           .fixed_bytes = memory.BytesFor(0) + runner_bytes,
                           .bytes_per_sample = memory.bytes_per_sample,
                           .pinned_bytes = memory.pinned_bytes_per_sample + pinned_bytes,
                           .largest_batches = {}};
    for (const int64_t gigabytes : kPlannedGigabytes) {
      worker.largest_batches.push_back(model::LargestMicroBatch(
          memory, runner_bytes, gigabytes * kGigabyte, has.memory_is_host));
    }
    workers.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

std::string WorkersTable(const MemoryPlan& plan, int columns) {
  using Align = TextTable::Align;
  std::vector<TextTable::Column> titles = {
      {"DEVICE"}, {"DTYPE"}, {"RECOMPUTE"}, {"FIXED", Align::kRight}, {"A SAMPLE", Align::kRight}};
  for (const int64_t gigabytes : kPlannedGigabytes) {
    titles.push_back({absl::StrCat(gigabytes, " GB"), Align::kRight});
  }
  TextTable table(std::move(titles));
  for (const WorkerMemory& worker : plan.workers) {
    std::vector<std::string> row = {worker.device, worker.dtype, worker.recompute,
                                    BytesText(worker.fixed_bytes),
                                    BytesText(worker.bytes_per_sample)};
    for (const int64_t largest : worker.largest_batches) {
      row.push_back(largest == 0 ? "-" : absl::StrCat(largest));
    }
    table.AddRow(std::move(row));
  }
  return table.Format(columns);
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const job::JobSpec& job, const params::Layout& layout,
                                      int num_servers) {
  MemoryPlan plan;
  plan.num_servers = num_servers;
  plan.has_local_steps = job::HasLocalSteps(job);
  ASSIGN_OR_RETURN(const std::vector<params::ElementRange> shards,
                   params::PlanShards(layout, num_servers));
  int64_t largest = 0;
  for (const params::ElementRange& shard : shards) largest = std::max(largest, shard.size());
  plan.server = plan::EstimateShardMemory(job, largest);
  plan.checkpoint_bytes = plan::EstimateShardMemory(job, layout.num_elements()).checkpoint();
  if (std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) return plan;
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Device> cpu,
                   factory::MakeDevice("cpu", /*threads=*/1, nullptr));
  kernels::PlannedCard fp32(kernels::DType::kF32);
  kernels::PlannedCard bf16(kernels::DType::kBf16);
  for (kernels::Device* const device :
       {cpu.get(), static_cast<kernels::Device*>(&fp32), static_cast<kernels::Device*>(&bf16)})
    RETURN_IF_ERROR(AddWorkers(job, layout, device, plan.workers));
  return plan;
}

bool FitsAPlannedCard(const MemoryPlan& plan) {
  if (plan.workers.empty()) return true;
  return std::any_of(plan.workers.begin(), plan.workers.end(), [](const WorkerMemory& worker) {
    return worker.device == "card" && worker.largest_batches.back() > 0;
  });
}

std::string MemoryText(const MemoryPlan& plan, int columns) {
  const plan::ShardMemory& server = plan.server;
  std::string text = Paragraph(
      plan.num_servers == 1 ? "Server: " : absl::StrCat("Each of ", plan.num_servers, " servers: "),
      absl::StrCat(server.Describe(), "; ", BytesText(server.peak()),
                   " while a checkpoint is written. Messages and connections need more "
                   "(docs/reference/limits.md). A checkpoint takes ",
                   BytesText(plan.checkpoint_bytes), " on disk",
                   plan.num_servers == 1 ? "." : ", all servers together."),
      columns);
  if (plan.workers.empty()) {
    return absl::StrCat(
        text, Paragraph("Worker: ", "its memory depends on the program that computes.", columns));
  }
  absl::StrAppend(&text, "\n", WorkersTable(plan, columns), "\n");
  if (!FitsAPlannedCard(plan)) {
    absl::StrAppend(&text, Paragraph("NO CARD ",
                                     absl::StrCat("of up to ", std::end(kPlannedGigabytes)[-1],
                                                  " GB has enough memory for a worker of this job.",
                                                  plan.has_local_steps
                                                      ? " With --mode=sync after --, a worker "
                                                        "keeps no local optimizer and needs less."
                                                      : ""),
                                     columns));
  }
  const auto is_card = [](const WorkerMemory& worker) { return worker.device == "card"; };
  const auto card = std::find_if(plan.workers.begin(), plan.workers.end(), is_card);
  absl::StrAppend(
      &text,
      Paragraph("",
                absl::StrCat(
                    "The table is for one worker and does not depend on their number. FIXED has "
                    "parameters, gradients, workspaces, and the state of local steps and "
                    "encodings. A SAMPLE is the memory per sample of a micro-batch. The other "
                    "columns have the largest --max_micro_batch for a card of so many GB, with 5 % "
                    "to spare; - means that not one sample fits. A worker with less memory than "
                    "FIXED and A SAMPLE together refuses the job. Pinned main memory per card: ",
                    BytesText(card->pinned_bytes), "."),
                columns));
  return text;
}

Json MemoryJson(const MemoryPlan& plan) {
  Json json;
  Json& server = json["server"];
  server["steady_bytes"] = plan.server.steady();
  server["peak_bytes"] = plan.server.peak();
  server["weights_bytes"] = plan.server.weights;
  server["optimizer_state_bytes"] = plan.server.optimizer_state;
  server["sums_bytes"] = plan.server.sums;
  server["shadow_bytes"] = plan.server.shadow;
  server["staging_bytes"] = plan.server.staging;
  json["checkpoint_bytes"] = plan.checkpoint_bytes;
  json["fits_a_card"] = FitsAPlannedCard(plan);
  json["workers"] = Json::array();
  for (const WorkerMemory& worker : plan.workers) {
    Json line;
    line["device"] = worker.device;
    line["dtype"] = worker.dtype;
    line["recompute"] = worker.recompute;
    line["fixed_bytes"] = worker.fixed_bytes;
    line["bytes_per_sample"] = worker.bytes_per_sample;
    line["pinned_bytes"] = worker.pinned_bytes;
    Json& largest = line["largest_micro_batch"];
    for (size_t i = 0; i < worker.largest_batches.size(); ++i) {
      largest[absl::StrCat(kPlannedGigabytes[i], "GB")] = worker.largest_batches[i];
    }
    json["workers"].push_back(std::move(line));
  }
  return json;
}

}  // namespace lodestar::psctl
