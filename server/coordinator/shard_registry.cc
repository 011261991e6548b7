#include "server/coordinator/shard_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lodestar {

ShardRegistry::ShardRegistry(int num_shards, absl::Time now) : entries_(num_shards) {
  for (Entry& entry : entries_) entry.since = now;
}

absl::Status ShardRegistry::Attach(int shard, int num_shards, uint64_t instance_id,
                                   absl::string_view address, absl::Time now) {
  if (num_shards != static_cast<int>(entries_.size()) || !Has(shard)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard=", shard, "/", num_shards, " does not fit this cluster of ",
                     entries_.size(), " shards; give every server the same number"));
  }
  Entry& entry = entries_[shard];
  if (entry.state != State::kMissing && entry.instance_id != instance_id) {
    return absl::AlreadyExistsError(absl::StrCat("shard ", shard, " is held by the server at ",
                                                 entry.address, " (", StateName(entry.state),
                                                 "); stop one of the two"));
  }
  entry = {State::kAttached, instance_id, std::string(address), now};
  return absl::OkStatus();
}

bool ShardRegistry::Lose(int shard, uint64_t instance_id, absl::Time now) {
  if (!Has(shard)) return false;
  Entry& entry = entries_[shard];
  if (entry.state == State::kMissing || entry.instance_id != instance_id) return false;
  entry.state = State::kMissing;
  entry.since = now;
  return true;
}

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
bool ShardRegistry::all_serving() const { return AllAtLeast(State::kServing); }

bool ShardRegistry::AllAtLeast(State wanted) const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.state >= wanted; });
}

std::string ShardRegistry::Lacking(State wanted, std::optional<absl::Time> now) const {
  std::vector<std::string> lacking;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].state >= wanted) continue;
    std::string& line =
        lacking.emplace_back(absl::StrCat("shard ", i, " (", StateName(entries_[i].state)));
    if (now.has_value()) {
      const absl::Duration age = absl::Trunc(*now - entries_[i].since, absl::Milliseconds(100));
      absl::StrAppend(&line, " for ", absl::FormatDuration(age));
    }
    line += ")";
  }
  return absl::StrJoin(lacking, " and ");
}

absl::string_view ShardRegistry::StateName(State state) {
  switch (state) {
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
