#include "server/coordinator/shard_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/time_text.h"

namespace lodestar {
namespace {

// "shard 1 (missing for 3s)"; without `now`, without the time.
std::string Describe(size_t shard, absl::string_view state, absl::Time since,
                     std::optional<absl::Time> now) {
  std::string text = absl::StrCat("shard ", shard, " (", state);
  if (now.has_value()) {
    absl::StrAppend(&text, " for ", DurationText(*now - since));
  }
  return absl::StrCat(text, ")");
}

}  // namespace

ShardRegistry::ShardRegistry(int num_shards, absl::Time now) : entries_(num_shards) {
  for (Entry& entry : entries_) entry.since = now;
}

ShardRegistry::ShardRegistry(const std::vector<Holder>& holders, absl::Time now) {
  for (const Holder& holder : holders) {
    entries_.push_back(
        {State::kServing, holder.instance_id, holder.address, now, false, now, /*away_since=*/now});
    entries_.back().journal_end = holder.journal_end;
    entries_.back().first_segment = holder.first_segment;
    entries_.back().process_id = holder.process_id;
  }
  back_at_ = now;
}

std::vector<ShardRegistry::Holder> ShardRegistry::Holders() const {
  std::vector<Holder> holders;
  for (const Entry& entry : entries_) {
    holders.push_back({entry.instance_id, entry.address, entry.journal_end, entry.first_segment,
                       entry.process_id});
  }
  return holders;
}

void ShardRegistry::SetJournal(int shard, JournalState journal) {
  Entry& entry = entries_[shard];
  entry.journal_end = std::max(entry.journal_end, journal.end);
  entry.journal = std::move(journal);
}

bool ShardRegistry::HasLostRecords(int shard, const JournalPlace& journal) const {
  const Entry& entry = entries_[shard];
  const bool tells_process = journal.process_id != 0 && entry.process_id != 0;
  // The end of the former connection may not have been noticed yet.
  const bool may_be_same =
      tells_process ? journal.process_id == entry.process_id : entry.is_connected;
  return !may_be_same && journal.end < entry.journal_end;
}

absl::Status ShardRegistry::CheckNotFollowed(int shard, uint64_t first_segment) const {
  // Servers of an earlier release do not tell of theirs.
  if (first_segment == 0 || !Has(shard) || first_segment >= entries_[shard].first_segment) {
    return absl::OkStatus();
  }
  return absl::AbortedError("another process goes on with the journal of this server");
}

absl::Status ShardRegistry::CheckFits(int shard, int num_shards) const {
  if (num_shards == static_cast<int>(entries_.size()) && Has(shard)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--shard=", shard, "/", num_shards, " does not fit this cluster of ", entries_.size(),
      entries_.size() == 1 ? " shard" : " shards", "; give every server the same number"));
}

absl::Status ShardRegistry::Attach(int shard, uint64_t instance_id, absl::string_view address,
                                   absl::Time now) {
  Entry& entry = entries_[shard];
  if (entry.state != State::kMissing && entry.instance_id != instance_id) {
    return absl::AlreadyExistsError(absl::StrCat("shard ", shard, " is held by the server at ",
                                                 entry.address, " (", StateName(entry),
                                                 "); stop one of the two"));
  }
  entry = {State::kAttached, instance_id, std::string(address), now, true, now};
  return absl::OkStatus();
}

bool ShardRegistry::IsHeldBy(int shard, uint64_t instance_id) const {
  return Has(shard) && entries_[shard].state != State::kMissing &&
         entries_[shard].instance_id == instance_id;
}

void ShardRegistry::Lose(int shard, absl::Time now) {
  Entry& entry = entries_[shard];
  entry.state = State::kMissing;
  entry.since = now;
  entry.is_connected = false;
  entry.away_since.reset();
  entry.is_told = false;
}

bool ShardRegistry::Disconnect(int shard, absl::Time now) {
  Entry& entry = entries_[shard];
  entry.is_connected = false;
  if (entry.is_away()) return false;
  entry.away_since = now;
  return true;
}

bool ShardRegistry::Reconnect(int shard, absl::string_view address, absl::Time now) {
  Entry& entry = entries_[shard];
  entry.is_connected = true;
  entry.address = std::string(address);
  entry.heard_at = now;
  return ComeBack(entry, now);
}

bool ShardRegistry::Hear(int shard, absl::Time now) {
  Entry& entry = entries_[shard];
  if (now - entry.heard_at > kQuiet) entry.runs_since = now;
  entry.heard_at = now;
  return entry.is_connected && entry.is_away() && ComeBack(entry, now);
}

bool ShardRegistry::ComeBack(Entry& entry, absl::Time now) {
  back_at_ = now;
  entry.is_told = false;
  return std::exchange(entry.away_since, std::nullopt).has_value();
}

std::vector<int> ShardRegistry::MarkSilent(absl::Time silent_since) {
  std::vector<int> silent;
  for (size_t shard = 1; shard < entries_.size(); ++shard) {
    Entry& entry = entries_[shard];
    if (!entry.is_connected || entry.is_away() || entry.heard_at >= silent_since) continue;
    entry.away_since = entry.heard_at;
    silent.push_back(static_cast<int>(shard));
  }
  return silent;
}

bool ShardRegistry::MarkTold(int shard) { return !std::exchange(entries_[shard].is_told, true); }

void ShardRegistry::MarkLoading(absl::Time now) {
  for (Entry& entry : entries_) {
    entry.state = State::kLoading;
    entry.since = now;
  }
}

void ShardRegistry::MarkServing(int shard, absl::Time now) {
  entries_[shard].state = State::kServing;
  entries_[shard].since = now;
}

bool ShardRegistry::all_attached() const { return AllAtLeast(State::kAttached); }
bool ShardRegistry::all_serving() const { return AllAtLeast(State::kServing) && !any_away(); }

bool ShardRegistry::any_away() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.is_away(); });
}

bool ShardRegistry::any_told() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.is_told; });
}

std::set<int> ShardRegistry::Reachable(absl::Time lost_since) const {
  std::set<int> reachable;
  for (size_t shard = 1; shard < entries_.size(); ++shard) {
    const Entry& entry = entries_[shard];
    const bool was_there = entry.instance_id != 0;
    const bool is_reachable =
        entry.state == State::kMissing ? was_there && entry.since >= lost_since : !entry.is_told;
    if (is_reachable) reachable.insert(static_cast<int>(shard));
  }
  return reachable;
}

std::string ShardRegistry::Away(std::optional<absl::Time> now) const {
  std::vector<std::string> away;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.is_away()) away.push_back(Describe(i, "away", *entry.away_since, now));
  }
  return absl::StrJoin(away, " and ");
}

bool ShardRegistry::AllAtLeast(State wanted) const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.state >= wanted; });
}

std::string ShardRegistry::Lacking(State wanted, std::optional<absl::Time> now) const {
  std::vector<std::string> lacking;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.state < wanted) lacking.push_back(Describe(i, StateName(entry), entry.since, now));
  }
  return absl::StrJoin(lacking, " and ");
}

std::string ShardRegistry::JournalTroubles(bool has_reasons) const {
  std::vector<std::string> troubles;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.journal.trouble.empty() || !entry.is_there()) continue;
    const std::string owner = entries_.size() == 1 ? "" : absl::StrCat(" of shard ", i);
    troubles.push_back(absl::StrCat(
        "the journal", owner, has_reasons ? ": " + entry.journal.trouble : " cannot be written"));
  }
  return absl::StrJoin(troubles, " and ");
}

absl::string_view ShardRegistry::StateName(const Entry& entry) {
  if (entry.is_away()) return "away";
  switch (entry.state) {
    case State::kMissing:
      return "missing";
    case State::kAttached:
      return "attached";
    case State::kLoading:
      return "loading";
    case State::kServing:
      return "serving";
  }
  return "unknown";
}

}  // namespace lodestar
