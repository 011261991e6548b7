// SPDX-License-Identifier: Apache-2.0

#include "server/host/shard_log.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "server/durability/journal/journal_reader.h"
#include "server/host/shard_record_json.h"

namespace lodestar::host {
namespace {

constexpr int64_t kFormat = 1;
constexpr absl::string_view kBegin = "begin";  // begins a segment
// Record that marks the end of a save's captures. All records that the checkpoint needs come before
// it.
constexpr absl::string_view kCaptured = "captured";
constexpr absl::string_view kBase = "base";  // a checkpoint is published
constexpr absl::string_view kFollowed =
    "followed";  // a command was obeyed for which no other record is written
constexpr char kFollowsJournal[] = "follows_journal";
constexpr char kFollowsRecord[] = "follows_record";
constexpr char kHighestRound[] = "highest_round";

// Returns the error for an intact record that this release of the program cannot interpret. Returns
// OK if `status` is OK.
absl::Status Unknown(uint64_t sequence, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::UnimplementedError(
      absl::StrCat("record ", sequence, " of the journal: ", status.message(),
                   "; another release wrote it. Start that release, or move the journal away to go "
                   "back to the newest checkpoint"));
}

// Returns the record of the shard in `text`. The result is not set if ShardLog wrote the record for
// itself.
absl::StatusOr<std::optional<shard::ShardRecord>> ParseRecord(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const std::string kind, GetString(json, "kind"));
  if (kind == kBegin || kind == kCaptured || kind == kBase || kind == kFollowed) {
    return std::nullopt;
  }
  return ShardRecordFromJson(json);
}

// Returns the round of a plan or a contribution: its record proves that the coordinator has opened
// or granted the round. -1 means that the record proves no round.
int64_t RoundOf(const shard::ShardRecord& record) {
  if (const auto* plan = std::get_if<sync::RoundPlan>(&record)) return plan->round.value();
  const auto* step = std::get_if<shard::StepRecord>(&record);
  if (step == nullptr || step->key.kind == messages::ContributionKind::kInitialWeights) return -1;
  switch (step->step.kind) {
    case shard::BucketStep::Kind::kAccumulate:
    case shard::BucketStep::Kind::kApplyAlone:
    case shard::BucketStep::Kind::kSkip:
      return step->key.round.value();
    default:
      return -1;
  }
}

absl::string_view TextOf(absl::Span<const std::byte> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardLog>> ShardLog::Open(const std::string& folder, Deps deps) {
  std::unique_ptr<ShardLog> log(new ShardLog(folder, std::move(deps)));
  RETURN_IF_ERROR(log->ReadBeginning());
  return log;
}

absl::StatusOr<std::unique_ptr<ShardLog>> ShardLog::OpenBesideDamaged(const std::string& folder,
                                                                      Deps deps) {
  std::unique_ptr<ShardLog> log(new ShardLog(folder, std::move(deps)));
  RETURN_IF_ERROR(log->MakeWriter({}, /*replaces_damaged=*/true));
  return log;
}

absl::Status ShardLog::MakeWriter(journal::JournalEnd end, bool replaces_damaged) {
  first_segment_ = end.segments.empty() ? 1 : end.segments.back().number + 1;
  journal::JournalWriter::Config config;
  config.folder = folder_;
  config.end = std::move(end);
  config.replaces_damaged = replaces_damaged;
  ASSIGN_OR_RETURN(
      writer_, journal::JournalWriter::Create(std::move(config), {.file_system = deps_.file_system,
                                                                  .clock = deps_.clock,
                                                                  .executor = deps_.executor,
                                                                  .confirm = deps_.confirm,
                                                                  .reclaim = deps_.reclaim,
                                                                  .on_trouble = deps_.on_trouble}));
  return absl::OkStatus();
}

absl::Status ShardLog::ReadBeginning() {
  uint64_t first = 0;
  ASSIGN_OR_RETURN(
      journal::JournalEnd end,
      journal::ReadJournal(*deps_.file_system, folder_, [&](const journal::JournalRecord& record) {
        if (first == 0) first = record.sequence;
        return Unknown(record.sequence, NoteBeginning(record));
      }));
  if (first > needed_from_) {
    return absl::DataLossError(absl::StrCat("journal ", folder_, " begins with record ", first,
                                            ", but should begin with ", needed_from_,
                                            "; its oldest file is missing or damaged"));
  }
  if (!assignment_.empty()) {
    absl::StatusOr<shards::AssignCommand> assignment = deps_.parse_assignment(assignment_);
    RETURN_IF_ERROR(Unknown(began_at_, assignment.status()));
    if (!base_.empty()) assignment->source = shards::CheckpointSource{base_};
    if (run_folder_.empty()) run_folder_ = assignment->folder.path;
    const JournalBase base = {
        .source = assignment->source, .run_folder = run_folder_, .checksum = base_checksum_};
    beginning_ = {instance_id_, *std::move(assignment), base};
  }
  torn_ = end.torn;
  return MakeWriter(std::move(end), /*replaces_damaged=*/false);
}

absl::Status ShardLog::NoteBeginning(const journal::JournalRecord& record) {
  const int64_t bytes_before = num_bytes_;
  num_bytes_ += static_cast<int64_t>(record.text.size() + record.payload.size());
  ASSIGN_OR_RETURN(const Json json, ParseJson(record.text));
  ASSIGN_OR_RETURN(const std::string kind, GetString(json, "kind"));
  RETURN_IF_ERROR(NoteFollowed(json));
  if (kind == kBase) {
    ASSIGN_OR_RETURN(base_, GetString(json, "directory"));
    RETURN_IF_ERROR(NoteBase(json));
    ASSIGN_OR_RETURN(needed_from_, GetUint64(json, "needed_from"));
    // A save is written into a directory with the name of the later checkpoint and a suffix.
    for (const Mark& mark : marks_) {
      if (absl::StartsWith(mark.directory, base_ + ".")) checkpoint_bytes_ = mark.num_bytes;
    }
    return absl::OkStatus();
  }
  if (kind == kCaptured || kind == kFollowed) return absl::OkStatus();
  if (kind != kBegin) {
    // Records that another release of the program has written are skipped here. Replay() refuses
    // them.
    const absl::StatusOr<shard::ShardRecord> done = ShardRecordFromJson(json);
    if (done.ok()) NoteRound(RoundOf(*done));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t format, GetInt64(json, "format"));
  if (format != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat("the record's format is ", format,
                                                   ", but this release reads format ", kFormat));
  }
  ASSIGN_OR_RETURN(instance_id_, GetUint64(json, "instance_id"));
  ASSIGN_OR_RETURN(base_, GetString(json, "base"));
  RETURN_IF_ERROR(NoteBase(json));
  ASSIGN_OR_RETURN(needed_from_, GetUint64(json, "needed_from"));
  assignment_ = std::string(TextOf(record.payload));
  ASSIGN_OR_RETURN(const std::string save, GetString(json, "save_directory"));
  if (save.empty()) ForgetRounds();
  if (json.contains(kHighestRound)) {
    ASSIGN_OR_RETURN(const int64_t highest, GetInt64(json, kHighestRound));
    NoteRound(highest);
  }
  if (save.empty()) {
    began_at_ = record.sequence;
    needed_from_ = record.sequence;
    marks_.clear();
    checkpoint_bytes_ = bytes_before;
    return absl::OkStatus();
  }
  Mark mark = {.sequence = record.sequence,
               .round = std::nullopt,
               .directory = save,
               .num_bytes = bytes_before};
  ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "save_round"));
  if (round >= 0) mark.round = Round(round);
  marks_.push_back(std::move(mark));
  return absl::OkStatus();
}

absl::Status ShardLog::NoteBase(const Json& json) {
  run_folder_.clear();
  base_checksum_.reset();
  // Earlier releases wrote neither `run_folder` nor the checksum.
  if (json.contains("run_folder")) {
    ASSIGN_OR_RETURN(run_folder_, GetString(json, "run_folder"));
  }
  if (json.contains("base_checksum")) {
    ASSIGN_OR_RETURN(const int64_t checksum, GetInt64(json, "base_checksum"));
    base_checksum_ = static_cast<uint32_t>(checksum);
  }
  return absl::OkStatus();
}

void ShardLog::DescribeBase(Json& json) const {
  json["run_folder"] = run_folder_;
  if (base_checksum_.has_value()) json["base_checksum"] = *base_checksum_;
}

absl::StatusOr<int64_t> ShardLog::Replay(TakeRecord take) const {
  int64_t num_records = 0;
  const auto replay = [&](const journal::JournalRecord& record) -> absl::Status {
    if (record.sequence <= began_at_) return absl::OkStatus();
    const absl::StatusOr<std::optional<shard::ShardRecord>> parsed = ParseRecord(record.text);
    RETURN_IF_ERROR(Unknown(record.sequence, parsed.status()));
    if (!parsed->has_value()) return absl::OkStatus();
    ++num_records;
    const absl::Status status = take(**parsed, record.payload);
    if (status.ok()) return status;
    return {status.code(),
            absl::StrCat("record ", record.sequence, " of the journal: ", status.message())};
  };
  RETURN_IF_ERROR(journal::ReadJournal(*deps_.file_system, folder_, replay).status());
  return num_records;
}

uint64_t ShardLog::BeginSegment(const Mark* save, std::function<void()> durable) {
  const auto payload = std::make_shared<const std::string>(assignment_);
  Json json = {
      {"kind", kBegin},
      {"format", kFormat},
      {"instance_id", instance_id_},
      {"base", base_},
      {"needed_from", save == nullptr ? 0 : needed_from_},
      {"save_directory", save == nullptr ? "" : save->directory},
      {"save_round", save == nullptr || !save->round.has_value() ? -1 : save->round->value()},
      {kHighestRound, highest_round()}};
  StampFollowed(json);
  DescribeBase(json);
  std::string text = FormatJson(json);
  num_bytes_ += static_cast<int64_t>(text.size() + payload->size());
  return writer_->BeginSegment(
      {.text = std::move(text),
       .payload = {reinterpret_cast<const std::byte*>(payload->data()), payload->size()},
       .owner = payload},
      std::move(durable));
}

void ShardLog::Begin(uint64_t instance_id, const shards::AssignCommand& assignment,
                     std::function<void()> durable) {
  instance_id_ = instance_id;
  assignment_ = deps_.format_assignment(assignment);
  base_.clear();
  run_folder_ = assignment.folder.path;
  base_checksum_ = ChecksumOf(*deps_.file_system, assignment.source);
  marks_.clear();
  ForgetRounds();
  checkpoint_bytes_ = num_bytes_.load();
  needed_from_ = BeginSegment(nullptr, std::move(durable));
  if (std::exchange(is_refused_, false)) {
    writer_->SetAsideBefore(needed_from_);
  } else {
    writer_->RemoveBefore(needed_from_);
  }
}

void ShardLog::Follow(const shards::CoordinatorRecord& record) {
  absl::MutexLock lock(&knowledge_mutex_);
  const bool is_later = record.journal_id != follows_.journal_id || record.number > follows_.number;
  if (record.journal_id != 0 && is_later) follows_ = record;
}

shards::CoordinatorRecord ShardLog::follows() const {
  absl::MutexLock lock(&knowledge_mutex_);
  return follows_;
}

int64_t ShardLog::highest_round() const {
  absl::MutexLock lock(&knowledge_mutex_);
  return highest_round_;
}

void ShardLog::OnFollowed() {
  {
    absl::MutexLock lock(&knowledge_mutex_);
    if (written_down_ == follows_) return;
  }
  AppendOwn({{"kind", kFollowed}}, [] {});
}

void ShardLog::StampFollowed(Json& json) {
  absl::MutexLock lock(&knowledge_mutex_);
  written_down_ = follows_;
  if (follows_.journal_id == 0) return;
  json[kFollowsJournal] = follows_.journal_id;
  json[kFollowsRecord] = follows_.number;
}

absl::Status ShardLog::NoteFollowed(const Json& json) {
  // In journals of earlier releases, no record names a record of the coordinator.
  if (!json.contains(kFollowsJournal)) return absl::OkStatus();
  shards::CoordinatorRecord record;
  ASSIGN_OR_RETURN(record.journal_id, GetUint64(json, kFollowsJournal));
  ASSIGN_OR_RETURN(record.number, GetUint64(json, kFollowsRecord));
  Follow(record);
  return absl::OkStatus();
}

void ShardLog::ForgetRounds() {
  absl::MutexLock lock(&knowledge_mutex_);
  highest_round_ = -1;
}

void ShardLog::NoteRound(int64_t round) {
  absl::MutexLock lock(&knowledge_mutex_);
  highest_round_ = std::max(highest_round_, round);
}

void ShardLog::OnSave(const shards::SaveCommand& save) {
  Mark mark = {
      .sequence = 0, .round = save.round, .directory = save.directory, .num_bytes = num_bytes_};
  mark.sequence = BeginSegment(&mark, [] {});
  marks_.push_back(std::move(mark));
}

void ShardLog::OnCaptured(std::function<void()> durable) {
  AppendOwn({{"kind", kCaptured}}, std::move(durable));
}

void ShardLog::AppendOwn(Json json, std::function<void()> durable) {
  StampFollowed(json);
  std::string text = FormatJson(json);
  num_bytes_ += static_cast<int64_t>(text.size());
  writer_->Append({.text = std::move(text)}, std::move(durable));
}

void ShardLog::OnPublished(const shards::PublishedCommand& published) {
  // Records that the checkpoint includes are no longer needed. The others are kept:
  // - With rounds, a round that was under way during the checkpoint's save may have begun before
  //   it. So records are kept from the last save of an earlier round on.
  // - Without rounds, records are kept from the checkpoint's own save on.
  const Mark* oldest_needed = nullptr;
  for (const Mark& mark : marks_) {
    const bool is_enough = mark.round.has_value() ? *mark.round < published.round
                                                  : mark.directory == published.directory;
    if (is_enough) oldest_needed = &mark;
    if (mark.directory == published.directory) checkpoint_bytes_ = mark.num_bytes;
  }
  base_ = published.path;
  if (!deps_.run_folder.empty()) run_folder_ = deps_.run_folder;
  base_checksum_ = ChecksumOf(*deps_.file_system, shards::CheckpointSource{base_});
  if (oldest_needed != nullptr) needed_from_ = oldest_needed->sequence;
  Json json = {{"kind", kBase}, {"directory", base_}, {"needed_from", needed_from_}};
  DescribeBase(json);
  AppendOwn(json, [] {});
  writer_->RemoveBefore(needed_from_);
  std::erase_if(marks_, [this](const Mark& mark) { return mark.sequence < needed_from_; });
}

void ShardLog::Append(shard::ShardRecord record, absl::Span<const std::byte> payload,
                      std::shared_ptr<const void> payload_owner, std::function<void()> durable) {
  NoteRound(RoundOf(record));
  Json json = ShardRecordToJson(record);
  if (std::holds_alternative<sync::RoundPlan>(record)) StampFollowed(json);
  std::string text = FormatJson(json);
  num_bytes_ += static_cast<int64_t>(text.size() + payload.size());
  writer_->Append({.text = std::move(text), .payload = payload, .owner = std::move(payload_owner)},
                  std::move(durable));
}

}  // namespace lodestar::host
