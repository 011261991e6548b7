// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/shards/shard_fleet.h"

#include <algorithm>

namespace lodestar::shards {

ShardFleet::ShardFleet(int num_shards, absl::Duration lease, absl::Time now)
    : patience_(std::max(lease, kLeastPatience)), servers_(num_shards), norms_(num_shards) {
  for (Server& server : servers_) server.since = now;
}

ShardFleet::Memory ShardFleet::memory() const {
  Memory memory;
  memory.server_incarnation = server_incarnation_;
  memory.norms = norms_.memory();
  for (const Server& server : servers_) {
    memory.servers.push_back({server.instance_id, server.address, server.journal_end,
                              server.first_segment, server.process_id});
  }
  return memory;
}

void ShardFleet::Resume(Memory memory, absl::Time now) {
  servers_.clear();
  for (Holder& holder : memory.servers) {
    servers_.push_back({State::kServing, holder.instance_id, std::move(holder.address), now, false,
                        now, /*away_since=*/now});
    servers_.back().journal_end = holder.journal_end;
    servers_.back().first_segment = holder.first_segment;
    servers_.back().process_id = holder.process_id;
  }
  back_at_ = now;
  has_loaded_ = true;
  server_incarnation_ = memory.server_incarnation;
  norms_ = NormReduction(static_cast<int>(servers_.size()), std::move(memory.norms));
}

AttachVerdict ShardFleet::JudgeAttach(const Attachment& attachment,
                                      const AttachFacts& facts) const {
  const auto& [shard, num_shards, instance_id, memory_of, address, journal] = attachment;
  if (num_shards != static_cast<int>(servers_.size()) || !Has(shard)) {
    return {.kind = AttachVerdict::Kind::kDoesNotFit};
  }
  const Server& server = servers_[shard];
  // Servers of an earlier release do not report their journals: first_segment is then 0.
  const bool lacks_records = journal.first_segment != 0 && HasLostRecords(shard, journal);
  // A journal that has gone back to an older state may begin with a lower segment than before. The
  // process that attaches has the folder of the journal. So a server that is away cannot be using
  // this journal.
  const bool may_be_followed = !lacks_records || !server.is_away();
  if (may_be_followed && IsHeldBy(shard, instance_id) && IsFollowed(shard, journal.first_segment)) {
    return {.kind = AttachVerdict::Kind::kFollowed};
  }
  const bool goes_on = GoesOn(shard, instance_id, memory_of, facts.has_memory);
  if (!goes_on || lacks_records) return JudgeNewMemory(attachment, facts, goes_on);
  return {.kind = AttachVerdict::Kind::kGoesOn,
          .is_another_process = journal.first_segment > server.first_segment,
          .has_moved = facts.address_in_map.has_value() && *facts.address_in_map != address};
}

AttachVerdict ShardFleet::JudgeNewMemory(const Attachment& attachment, const AttachFacts& facts,
                                         bool has_lost_records) const {
  const Server& server = servers_[attachment.shard];
  AttachVerdict verdict = {.kind = facts.is_comparing && facts.is_resumed
                                       ? AttachVerdict::Kind::kLosesUntold
                                       : AttachVerdict::Kind::kLoses};
  if (IsHeldBy(attachment.shard, attachment.instance_id)) {
    // The process has loaded since it made this call. The call comes late, over an earlier
    // connection.
    if (server.state == State::kServing && attachment.memory_of < server_incarnation_ &&
        !facts.is_comparing) {
      return {.kind = AttachVerdict::Kind::kLate};
    }
    if (has_lost_records) {
      verdict.loss = {ShardLoss::Kind::kLacksRecords, attachment.journal.end,
                      attachment.journal.highest_round, server.journal_end};
    } else {
      verdict.loss.kind =
          facts.has_memory ? ShardLoss::Kind::kMissedAssignment : ShardLoss::Kind::kCutOff;
    }
    return verdict;
  }
  if (server.is_away()) {
    const bool had_weights = facts.is_ready || (facts.is_comparing && facts.is_resumed);
    verdict.loss.kind = !had_weights             ? ShardLoss::Kind::kStartedAnew
                        : server.journal_end > 0 ? ShardLoss::Kind::kLeftJournal
                                                 : ShardLoss::Kind::kLostMemory;
    return verdict;
  }
  return {.kind = server.state == State::kMissing ? AttachVerdict::Kind::kTakes
                                                  : AttachVerdict::Kind::kHeld};
}

bool ShardFleet::HasLostRecords(int shard, const JournalPlace& journal) const {
  const Server& server = servers_[shard];
  const bool tells_process = journal.process_id != 0 && server.process_id != 0;
  // The end of the previous connection may not have been noticed yet.
  const bool may_be_same =
      tells_process ? journal.process_id == server.process_id : server.is_connected;
  return !may_be_same && journal.end < server.journal_end;
}

// Servers of an earlier release do not report their journals: first_segment is then 0.
bool ShardFleet::IsFollowed(int shard, uint64_t first_segment) const {
  return first_segment != 0 && Has(shard) && first_segment < servers_[shard].first_segment;
}

void ShardFleet::Attach(const Attachment& attachment, absl::Time now) {
  servers_[attachment.shard] = {
      State::kAttached, attachment.instance_id, std::string(attachment.address), now, true, now};
  NoteKnowledge(attachment);
}

void ShardFleet::GoOn(const Attachment& attachment, absl::Time now) {
  Server& server = servers_[attachment.shard];
  server.is_connected = true;
  server.address = std::string(attachment.address);
  server.heard_at = now;
  ComeBack(server, now);
  NoteKnowledge(attachment);
}

void ShardFleet::NoteKnowledge(const Attachment& attachment) {
  servers_[attachment.shard].first_segment = attachment.journal.first_segment;
  servers_[attachment.shard].process_id = attachment.journal.process_id;
  knowledge_[attachment.shard] = {attachment.shard, attachment.memory_of, attachment.journal};
}

std::vector<std::string> ShardFleet::addresses() const {
  std::vector<std::string> addresses;
  for (const Server& server : servers_) addresses.push_back(server.address);
  return addresses;
}

bool ShardFleet::IsHeldBy(int shard, uint64_t instance_id) const {
  return Has(shard) && servers_[shard].state != State::kMissing &&
         servers_[shard].instance_id == instance_id;
}

void ShardFleet::Lose(int shard, absl::Time now) {
  Server& server = servers_[shard];
  server.state = State::kMissing;
  server.since = now;
  server.is_connected = false;
  server.away_since.reset();
  server.is_told = false;
}

void ShardFleet::LoseUntold(int shard, const ShardLoss& loss, absl::Time now) {
  Lose(shard, now);
  untold_losses_[shard] = loss;
}

bool ShardFleet::Disconnect(int shard, absl::Time now) {
  Server& server = servers_[shard];
  server.is_connected = false;
  if (server.is_away()) return false;
  server.away_since = now;
  return true;
}

bool ShardFleet::Hear(int shard, uint64_t instance_id, absl::Time now) {
  if (!IsHeldBy(shard, instance_id)) return false;
  Server& server = servers_[shard];
  if (now - server.heard_at > kQuiet) server.runs_since = now;
  server.heard_at = now;
  return server.is_connected && server.is_away() && ComeBack(server, now);
}

bool ShardFleet::ComeBack(Server& server, absl::Time now) {
  back_at_ = now;
  server.is_told = false;
  return std::exchange(server.away_since, std::nullopt).has_value();
}

std::vector<int> ShardFleet::MarkSilent(absl::Time now) {
  std::vector<int> silent;
  for (size_t shard = 1; shard < servers_.size(); ++shard) {
    Server& server = servers_[shard];
    if (!server.is_connected || server.is_away() || server.heard_at >= now - patience_) continue;
    server.away_since = server.heard_at;
    silent.push_back(static_cast<int>(shard));
  }
  return silent;
}

std::vector<int> ShardFleet::StillAway(absl::Time now) const {
  return Which([&](const Server& server) {
    return server.is_away() && now - *server.away_since >= patience_;
  });
}

bool ShardFleet::MarkTold(int shard) { return !std::exchange(servers_[shard].is_told, true); }

void ShardFleet::MarkLoading(absl::Time now) {
  for (Server& server : servers_) {
    server.state = State::kLoading;
    server.since = now;
  }
}

void ShardFleet::MarkServing(int shard, absl::Time now) {
  servers_[shard].state = State::kServing;
  servers_[shard].since = now;
}

bool ShardFleet::FinishLoading() {
  if (!all_serving()) return false;
  has_loaded_ = true;
  return true;
}

void ShardFleet::SetJournal(int shard, JournalState journal) {
  NoteJournalEnd(shard, journal.end);
  servers_[shard].journal = std::move(journal);
}

void ShardFleet::NoteJournalEnd(int shard, uint64_t end) {
  servers_[shard].journal_end = std::max(servers_[shard].journal_end, end);
}

bool ShardFleet::all_keep_journals() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.first_segment != 0; });
}

std::optional<JournalLoss> ShardFleet::Compare(const JournalFacts& facts,
                                               std::optional<Round> next_round) {
  std::optional<ResumedMemory> resumed;
  if (next_round.has_value()) resumed = ResumedMemory{server_incarnation_, *next_round};
  std::vector<ShardKnowledge> knowledge;
  uint64_t& newest = newest_known_incarnation_;
  newest = server_incarnation_;
  if (facts.newest.has_value()) newest = std::max(newest, facts.newest->server_incarnation);
  for (const auto& [shard, of_shard] : knowledge_) {
    knowledge.push_back(of_shard);
    newest = std::max(newest, of_shard.memory_of);
  }
  return FindJournalLoss(facts, resumed, knowledge);
}

void ShardFleet::BeginIncarnation(uint64_t at_least) {
  server_incarnation_ =
      std::max({at_least, server_incarnation_ + 1, newest_known_incarnation_ + 1});
}

std::optional<double> ShardFleet::AddSquareSums(int shard, Round round, std::vector<double> sums) {
  if (!norms_.Add(round, shard, std::move(sums))) return std::nullopt;
  return norms_.TotalOf(round);
}

void ShardFleet::ForgetRounds() {
  norms_.Clear();
  published_.reset();
}

bool ShardFleet::any_told() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.is_told; });
}

std::set<int> ShardFleet::Reachable(absl::Time now) const {
  const std::vector<int> reachable = Which([&](const Server& server) {
    const bool was_there = server.instance_id != 0;
    return server.state == State::kMissing ? was_there && server.since >= now - patience_
                                           : !server.is_told;
  });
  std::set<int> above_zero(reachable.begin(), reachable.end());
  above_zero.erase(0);
  return above_zero;
}

std::vector<int> ShardFleet::Away() const {
  return Which([](const Server& server) { return server.is_away(); });
}

std::vector<int> ShardFleet::Lacking(State wanted) const {
  return Which([wanted](const Server& server) { return server.state < wanted; });
}

std::vector<int> ShardFleet::WithJournalTrouble() const {
  return Which(
      [](const Server& server) { return !server.journal.trouble.empty() && server.is_there(); });
}

std::vector<int> ShardFleet::Which(absl::FunctionRef<bool(const Server&)> which) const {
  std::vector<int> shards;
  for (size_t shard = 0; shard < servers_.size(); ++shard) {
    if (which(servers_[shard])) shards.push_back(static_cast<int>(shard));
  }
  return shards;
}

absl::string_view ServerStateName(const ShardFleet::Server& server) {
  if (server.is_away()) return "away";
  switch (server.state) {
    case ShardFleet::State::kMissing:
      return "missing";
    case ShardFleet::State::kAttached:
      return "attached";
    case ShardFleet::State::kLoading:
      return "loading";
    case ShardFleet::State::kServing:
      return "serving";
  }
  return "unknown";
}

}  // namespace lodestar::shards
