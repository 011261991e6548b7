// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/plan_command.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/job/job_fields.h"
#include "common/job/job_spec.h"
#include "common/job/outer_step.h"
#include "common/job/robust_mean.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/params/shard_plan.h"
#include "common/plan/exchange_choice.h"
#include "common/plan/exchange_forecast.h"
#include "common/plan/exchange_sizes.h"
#include "common/plan/loss_estimate.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/text_table.h"
#include "deploy/psctl/memory_plan.h"
#include "proto/model_file.h"

namespace lodestar::psctl {
namespace {

constexpr double kMegabitBytes = 1e6 / 8;
constexpr int kMostWorkers = 4096;
// Values of the job if no flag gives others. The planned time of a round does not depend on them.
constexpr int64_t kBatchSize = 8;
constexpr int64_t kRounds = 1000;

absl::Status CheckOptions(const PlanOptions& options) {
  if (options.model.empty() == (options.parameters == 0.0)) {
    return absl::InvalidArgumentError(
        "the model is missing: give --model=PRESET, --model=FILE, or --parameters=N with its "
        "number of parameters");
  }
  if (options.parameters != 0.0) {
    RETURN_IF_ERROR(CheckRange("parameters", options.parameters, 1000, 1e13));
  }
  RETURN_IF_ERROR(CheckWholeRange("workers", options.workers, 1, kMostWorkers));
  RETURN_IF_ERROR(CheckWholeRange("servers", options.servers, 1, params::kMaxServers));
  if (options.output != "table" && options.output != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--output=", options.output, " is unknown; allowed: table, json"));
  }
  return absl::OkStatus();
}

// Returns true if the plan also covers the exchanges over a network.
bool HasNetwork(const PlanOptions& options) {
  return options.up != 0.0 || options.down != 0.0 || options.rtt_ms >= 0.0 ||
         options.step_ms != 0.0;
}

absl::Status CheckNetwork(const PlanOptions& options) {
  constexpr double kMostMegabits = 1e7;
  constexpr double kMostMilliseconds = 1e7;
  if (options.up == 0.0 || options.down == 0.0) {
    return absl::InvalidArgumentError(
        "--up or --down is missing: give both, the rates in Mbit/s at which a worker can send and "
        "receive");
  }
  if (options.rtt_ms < 0.0) {
    return absl::InvalidArgumentError(
        "--rtt is missing: give the round-trip time between a worker and a server in ms, at least "
        "0, as ping shows it");
  }
  if (options.step_ms == 0.0) {
    return absl::InvalidArgumentError(
        "--step_ms is missing: give the time in ms of one step of a worker without a network, for "
        "example from the log of a run with one worker");
  }
  constexpr double kLeastMegabits = 1e-3;
  RETURN_IF_ERROR(CheckRange("up", options.up, kLeastMegabits, kMostMegabits));
  RETURN_IF_ERROR(CheckRange("down", options.down, kLeastMegabits, kMostMegabits));
  for (const auto& [flag, value] :
       {std::pair("server_up", options.server_up), std::pair("server_down", options.server_down)}) {
    if (value != 0.0) RETURN_IF_ERROR(CheckRange(flag, value, kLeastMegabits, kMostMegabits));
  }
  RETURN_IF_ERROR(CheckRange("rtt", options.rtt_ms, 0, 60'000));
  RETURN_IF_ERROR(CheckRange("step_ms", options.step_ms, 1e-3, kMostMilliseconds));
  RETURN_IF_ERROR(CheckRange("packet_loss", options.packet_loss_percent, 0, 50));
  RETURN_IF_ERROR(CheckWholeRange("packet_bytes", options.packet_bytes, 576, 65'535));
  RETURN_IF_ERROR(CheckRange("utilisation", options.utilisation, 0.01, 0.999));
  RETURN_IF_ERROR(CheckRange("loss_budget", options.loss_budget_percent, 0, 1000));
  RETURN_IF_ERROR(CheckWholeRange("max_local_steps", options.max_local_steps, 2, 100'000));
  RETURN_IF_ERROR(CheckWholeRange("steps", options.total_steps, 0, int64_t{1} << 48));
  RETURN_IF_ERROR(CheckRange("worker_threads", options.worker_threads, 0.01, 10'000));
  RETURN_IF_ERROR(CheckRange("server_threads", options.server_threads, 0.01, 10'000));
  return CheckRange("overhead_ms", options.overhead_ms, 0, 60'000);
}

absl::StatusOr<params::ModelSpec> ReadModel(const std::string& model) {
  absl::StatusOr<params::ModelSpec> named = wire::NamedModel(model);
  if (named.ok()) return named;
  return absl::Status(
      named.status().code(),
      absl::StrCat(named.status().message(), "; for another model, give --parameters=N"));
}

// Makes a layout for a model of which only the size is known. It has 32 blocks of equal size.
absl::StatusOr<params::Layout> LayoutOfSize(double parameters) {
  constexpr int kBlocks = 32;
  const auto elements = static_cast<int64_t>(parameters);
  std::vector<params::TensorSpec> tensors(kBlocks);
  int64_t before = 0;
  for (int i = 0; i < kBlocks; ++i) {
    const int64_t end = (i + 1) * elements / kBlocks;
    tensors[i].name = absl::StrCat("block", i);
    tensors[i].shape = {end - before};
    tensors[i].block = i;
    before = end;
  }
  return params::Layout::FromTensors(std::move(tensors));
}

// Reads those flags of ps_server that matter for the time of rounds, for the loss and for memory.
class JobFlags {
 public:
  explicit JobFlags(job::JobSpec base) : job_(std::move(base)) {}

  absl::Status Add(absl::string_view argument) {
    absl::string_view flag = argument;
    if (!absl::ConsumePrefix(&flag, "--")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", argument, "' after -- is not a flag; write flags of ps_server as --NAME=VALUE"));
    }
    const size_t end = flag.find('=');
    const absl::string_view name = flag.substr(0, end);
    const bool has_value = end != absl::string_view::npos;
    return Set(name, has_value ? flag.substr(end + 1) : "true");
  }
  // Returns the job with all flags added so far. Errors: those of ValidateJobSpec().
  absl::StatusOr<job::JobSpec> Get() {
    for (const auto& [field, text] : texts_) RETURN_IF_ERROR(job::SetFromText(*field, text, job_));
    RETURN_IF_ERROR(job::ValidateJobSpec(job_));
    return job_;
  }
  const std::vector<std::string>& uncounted() const { return uncounted_; }
  // Returns true if the job begins with trained weights.
  bool fine_tunes() const { return fine_tunes_; }

 private:
  absl::Status Set(absl::string_view name, absl::string_view value) {
    if (name == "init_from") {
      fine_tunes_ = !value.empty();
      return absl::OkStatus();
    }
    if (name == "outer_preset") {
      return absl::InvalidArgumentError(
          "psctl plan does not read --outer_preset; give its --local_steps and --outer_optimizer "
          "instead");
    }
    const job::JobField* const field = job::FindJobField(name);
    if (field == nullptr || !field->is_planned) {
      uncounted_.push_back(absl::StrCat("--", name));
      return absl::OkStatus();
    }
    texts_[field] = std::string(value);
    return absl::OkStatus();
  }

  job::JobSpec job_;
  std::map<const job::JobField*, std::string>
      texts_;  // in the order in which the fields must be set
  bool fine_tunes_ = false;
  std::vector<std::string> uncounted_;
};

std::optional<int64_t> TotalSteps(const PlanOptions& options) {
  if (options.total_steps == 0) return std::nullopt;
  return options.total_steps;
}

plan::ExchangeFacts FactsOf(const PlanOptions& options) {
  plan::ExchangeFacts facts;
  facts.num_workers = options.workers;
  const auto or_else = [](double value, double other) { return value == 0.0 ? other : value; };
  facts.path.worker_up = options.up * kMegabitBytes;
  facts.path.worker_down = options.down * kMegabitBytes;
  facts.path.server_up = or_else(options.server_up, options.up) * kMegabitBytes;
  facts.path.server_down = or_else(options.server_down, options.down) * kMegabitBytes;
  facts.path.round_trip = absl::Milliseconds(options.rtt_ms);
  facts.path.packet_loss = options.packet_loss_percent / 100;
  facts.path.packet_bytes = options.packet_bytes;
  facts.step = absl::Milliseconds(options.step_ms);
  facts.worker_rates = facts.worker_rates.TimesThreads(options.worker_threads);
  facts.worker_rates.round_overhead = absl::Milliseconds(options.overhead_ms);
  facts.server_rates = facts.server_rates.TimesThreads(options.server_threads);
  return facts;
}

struct Plan {
  int64_t parameters = 0;
  MemoryPlan memory;
  plan::ExchangeChoice choice;
  std::optional<plan::ExchangeOption> given;  // the job of the flags behind "--"
  std::vector<std::string> uncounted;         // flags behind "--" that the plan does not use
  std::vector<std::string> flags;             // all flags of the chosen option
};

std::string SecondsText(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  return seconds < 1.0 ? absl::StrFormat("%.1f ms", 1e3 * seconds)
                       : absl::StrFormat("%.*f s", seconds < 100 ? 2 : 0, seconds);
}

std::string MegabytesText(double bytes) { return absl::StrFormat("%.2f", bytes / 1e6); }

std::string LossColumn(const plan::ExchangeOption& option) {
  return option.loss.percent.has_value() ? absl::StrFormat("%+.1f %%", *option.loss.percent)
                                         : "unknown";
}

std::string ModelName(const PlanOptions& options) {
  return options.model.empty() ? "a model" : options.model;
}

std::string TableText(const Plan& plan, const PlanOptions& options,
                      const plan::ExchangeFacts& facts, int columns) {
  using Align = TextTable::Align;
  TextTable table({{"WAY"},
                   {"STEPS", Align::kRight},
                   {"PARTS", Align::kRight, 1},
                   {"OVERLAP", Align::kRight, 1},
                   {"ROUND", Align::kRight},
                   {"PER STEP", Align::kRight, 3},
                   {"COMPUTES", Align::kRight},
                   {"UP, MB", Align::kRight, 2},
                   {"DOWN, MB", Align::kRight, 2},
                   {"LOSS", Align::kRight},
                   {""}});
  const auto add = [&table](const plan::ExchangeOption& option, absl::string_view remark) {
    const job::JobSpec& job = option.job;
    const bool hides_all = job.overlap_rounds || job::IsElastic(job);
    const std::string overlap = hides_all               ? "all"
                                : job.overlap_steps > 0 ? absl::StrCat(job.overlap_steps)
                                                        : "";
    table.AddRow({option.name, absl::StrCat(job.local_steps), absl::StrCat(job.fragments), overlap,
                  SecondsText(option.forecast.round), SecondsText(option.forecast.per_step()),
                  absl::StrFormat("%.1f %%", 100 * option.forecast.utilisation()),
                  MegabytesText(option.forecast.bytes_up),
                  MegabytesText(option.forecast.bytes_down), LossColumn(option),
                  std::string(remark)});
  };
  if (plan.given.has_value()) add(*plan.given, "given");
  for (int i = 0; i < static_cast<int>(plan.choice.options.size()); ++i) {
    add(plan.choice.options[i], i == plan.choice.chosen ? "<-" : "");
  }
  const std::string what = absl::StrFormat(
      "%s, %.4g million parameters; %d workers with %g Mbit/s up and %g down, %d %s with %g up and "
      "%g down%s; round trip %g ms, a step %g ms",
      ModelName(options), plan.parameters / 1e6, options.workers, options.up, options.down,
      options.servers, options.servers == 1 ? "server" : "servers",
      facts.path.server_up / kMegabitBytes, facts.path.server_down / kMegabitBytes,
      options.workers > 1 ? " for all of them" : "", options.rtt_ms, options.step_ms);
  std::string text = absl::StrCat(Paragraph("", what, columns), "\n");
  absl::StrAppend(&text, table.Format(columns));
  absl::StrAppend(
      &text, "\n",
      Paragraph("",
                "STEPS is the number of local steps between two exchanges of the same parameters. "
                "UP and DOWN are what one worker sends and receives in a round. LOSS is the "
                "estimated difference from the loss of sync in fp32 after the same number of "
                "samples.",
                columns));
  for (const plan::ExchangeOption* option : {plan.given.has_value() ? &*plan.given : nullptr,
                                             &plan.choice.options[plan.choice.chosen]}) {
    if (option == nullptr) continue;
    absl::StrAppend(&text, Paragraph(absl::StrCat("Loss of ", option->name, ": "),
                                     option->loss.reason, columns));
  }
  if (!plan.uncounted.empty()) {
    absl::StrAppend(&text, Paragraph("Flags without effect on this forecast: ",
                                     absl::StrJoin(plan.uncounted, ", "), columns));
  }
  absl::StrAppend(
      &text, "\n",
      Paragraph(plan.choice.is_met ? "Best: " : "NOT MET: ", plan.choice.reason, columns),
      "\n  ps_server ", absl::StrJoin(plan.flags, " "), "\n\nMemory",
      plan.given.has_value() ? ", as given" : ", with these flags", "\n",
      MemoryText(plan.memory, columns));
  return text;
}

Json JsonOf(const plan::ExchangeOption& option) {
  const plan::ExchangeForecast& forecast = option.forecast;
  Json json;
  json["name"] = option.name;
  json["flags"] = plan::ExchangeFlags(option.job);
  json["local_steps"] = option.job.local_steps;
  json["round_seconds"] = absl::ToDoubleSeconds(forecast.round);
  json["step_seconds"] = absl::ToDoubleSeconds(forecast.per_step());
  json["exposed_seconds"] = absl::ToDoubleSeconds(forecast.exposed());
  json["utilisation"] = forecast.utilisation();
  json["bytes_up"] = std::llround(forecast.bytes_up);
  json["bytes_down"] = std::llround(forecast.bytes_down);
  if (option.loss.percent.has_value()) {
    json["loss_percent"] = *option.loss.percent;
  } else {
    json["loss_percent"] = nullptr;
  }
  json["loss_reason"] = option.loss.reason;
  json["within_bounds"] = option.protects_loss && option.reaches_utilisation;
  return json;
}

std::string JsonText(const Plan& plan) {
  Json json;
  json["parameters"] = plan.parameters;
  if (plan.given.has_value()) json["given"] = JsonOf(*plan.given);
  json["options"] = Json::array();
  for (const plan::ExchangeOption& option : plan.choice.options)
    json["options"].push_back(JsonOf(option));
  json["chosen"] = plan.choice.chosen;
  json["is_met"] = plan.choice.is_met;
  json["reason"] = plan.choice.reason;
  json["ps_server_flags"] = plan.flags;
  json["memory"] = MemoryJson(plan.memory);
  return FormatJson(json) + "\n";
}

// Plans memory only. This is for a command without flags about the network.
absl::StatusOr<PlanAnswer> PlanMemoryAlone(const PlanOptions& options, JobFlags flags,
                                           const params::Layout& layout, int columns) {
  ASSIGN_OR_RETURN(const job::JobSpec job, flags.Get());
  ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(job, layout, options.servers));
  if (options.output == "json") {
    Json json;
    json["parameters"] = layout.num_elements();
    json["memory"] = MemoryJson(memory);
    return PlanAnswer{.text = FormatJson(json) + "\n", .is_met = true};
  }
  std::string what =
      absl::StrFormat("%s, %.4g million parameters, %s", ModelName(options),
                      static_cast<double>(layout.num_elements()) / 1e6, NameOf(job.mode));
  if (!job::HasLocalSteps(job)) {
    absl::StrAppend(&what, " with ", NameOf(job.optimizer.kind), " on the servers");
  } else {
    absl::StrAppend(&what, " with ", NameOf(job.optimizer.kind), " on the workers and ",
                    NameOf(job.outer_optimizer), " on the servers");
  }
  std::string text = absl::StrCat(Paragraph("", what, columns), "\n", MemoryText(memory, columns));
  if (!flags.uncounted().empty()) {
    absl::StrAppend(&text, Paragraph("Flags without effect on memory: ",
                                     absl::StrJoin(flags.uncounted(), ", "), columns));
  }
  absl::StrAppend(&text, "\n",
                  Paragraph("",
                            "Give --up, --down, --rtt and --step_ms as well to see the best way to "
                            "exchange over that network.",
                            columns));
  return PlanAnswer{.text = std::move(text), .is_met = true};
}

// Returns the command line of the coordinator for the chosen option. Flags that do not matter for
// the exchange between workers and servers are left out.
std::vector<std::string> ServerFlags(const PlanOptions& options, const job::JobSpec& job) {
  std::vector<std::string> flags = {
      absl::StrCat("--model=", options.model.empty() ? "client" : options.model),
      absl::StrCat("--min_workers=", options.workers)};
  if (options.servers > 1) flags.push_back(absl::StrCat("--shard=0/", options.servers));
  // README.md, section "Several machines", recommends --long_paths for a round trip of more than 1
  // ms.
  constexpr double kLongPathMs = 1.0;
  if (options.rtt_ms > kLongPathMs) flags.push_back("--long_paths");
  for (std::string& flag : plan::ExchangeFlags(job)) flags.push_back(std::move(flag));
  return flags;
}

}  // namespace

absl::StatusOr<PlanAnswer> MakePlan(const PlanOptions& options, int columns) {
  RETURN_IF_ERROR(CheckOptions(options));
  job::JobSpec base;
  base.batch_size = kBatchSize;
  base.schedule.total_rounds = kRounds;
  base.min_workers = options.workers;
  base.outer_learning_rate = job::kDefaultOuterLearningRate;
  base.outer_momentum = job::kDefaultOuterMomentum;
  absl::StatusOr<params::Layout> layout;
  if (options.model.empty()) {
    base.model = {.name = "client", .architecture = params::ClientModelSpec()};
    layout = LayoutOfSize(options.parameters);
  } else {
    ASSIGN_OR_RETURN(base.model, ReadModel(options.model));
    if (std::holds_alternative<params::ClientModelSpec>(base.model.architecture)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--model=", options.model,
                       ": the size of this model is not known before a program joins; give "
                       "--parameters=N instead"));
    }
    layout = params::BuildLayout(base.model);
  }
  RETURN_IF_ERROR(layout.status());
  JobFlags flags(base);
  for (const std::string& flag : options.job_flags) RETURN_IF_ERROR(flags.Add(flag));
  if (!HasNetwork(options)) return PlanMemoryAlone(options, std::move(flags), *layout, columns);
  RETURN_IF_ERROR(CheckNetwork(options));
  const plan::ExchangeFacts facts = FactsOf(options);

  Plan plan;
  plan.parameters = layout->num_elements();
  if (!options.job_flags.empty()) {
    ASSIGN_OR_RETURN(const job::JobSpec job, flags.Get());
    base.optimizer = job.optimizer;
    base.bucket_bytes = job.bucket_bytes;
    base.schedule = job.schedule;
    ASSIGN_OR_RETURN(const plan::ExchangeSizes sizes,
                     plan::PlanExchangeSizes(job, *layout, options.servers));
    plan.given = plan::ExchangeOption{
        .name = absl::StrJoin(plan::ExchangeFlags(job), " "),
        .job = job,
        .forecast = plan::ForecastExchange(job, sizes, facts),
        .loss = plan::EstimateLoss(job, {.num_parameters = layout->num_elements(),
                                         .num_workers = options.workers,
                                         .total_steps = TotalSteps(options),
                                         .begins_with_trained_weights = flags.fine_tunes()})};
    plan.uncounted = flags.uncounted();
  }
  const plan::ExchangeBounds bounds = {.utilisation = options.utilisation,
                                       .loss_percent = options.loss_budget_percent,
                                       .max_local_steps = options.max_local_steps,
                                       .total_steps = TotalSteps(options),
                                       .begins_with_trained_weights = flags.fine_tunes()};
  ASSIGN_OR_RETURN(plan.choice,
                   plan::ChooseExchange(base, *layout, options.servers, facts, bounds));
  const job::JobSpec& chosen = plan.choice.options[plan.choice.chosen].job;
  plan.flags = ServerFlags(options, chosen);
  ASSIGN_OR_RETURN(plan.memory, PlanMemory(plan.given.has_value() ? plan.given->job : chosen,
                                           *layout, options.servers));
  return PlanAnswer{
      .text = options.output == "json" ? JsonText(plan) : TableText(plan, options, facts, columns),
      .is_met = plan.choice.is_met};
}

}  // namespace lodestar::psctl
