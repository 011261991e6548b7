// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/connection_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"

namespace lodestar::firewall {
namespace {

// Minimum time between two sweeps in LetIn(). Each sweep asks the system about every connection, so
// many refused connections in a row must not each cause one.
constexpr absl::Duration kSweepPause = absl::Milliseconds(10);
// Maximum number of peers in closed_.
constexpr size_t kMaxClosed = 4096;
// Number of files that a server needs apart from connections: for journals, checkpoints and memory
// that it shares with workers.
constexpr int64_t kFilesForOthers = 512;

bool IsLoopback(absl::string_view address) {
  return absl::StartsWith(address, "127.") || address == "::1";
}

}  // namespace

absl::string_view RefusalName(RefusalReason refusal) {
  switch (refusal) {
    case RefusalReason::kSilent:
      return "silent";
    case RefusalReason::kTooMany:
      return "too many";
    case RefusalReason::kTooManyOfAddress:
      return "too many connections from one address";
    case RefusalReason::kTooFast:
      return "too many new connections from one address";
    case RefusalReason::kNoGrpc:
      return "no gRPC";
    case RefusalReason::kWrongSecurity:
      return "with TLS only at the client or only at the server";
    case RefusalReason::kOldTls:
      return "TLS before 1.3";
    case RefusalReason::kNotServing:
      return "before the server had started";
    case RefusalReason::kNoFile:
      return "no file descriptor left";
  }
  return "";
}

int ConnectionLimits::per_address() const {
  return max_per_address > 0 ? max_per_address : std::max(max_connections / 4, 1);
}

ConnectionLimits LimitToFiles(ConnectionLimits limits, int64_t max_files) {
  const int64_t waiting = std::clamp<int64_t>(max_files / 8, 1, limits.max_waiting);
  const int64_t others = std::min(max_files / 4, kFilesForOthers);
  limits.max_waiting = static_cast<int>(waiting);
  limits.max_connections = static_cast<int>(
      std::clamp<int64_t>(max_files - others - waiting, 1, limits.max_connections));
  return limits;
}

ConnectionTable::ConnectionTable(const ConnectionLimits& limits, Identify identify,
                                 WasClosed was_closed)
    : limits_(limits), identify_(std::move(identify)), was_closed_(std::move(was_closed)) {}

std::optional<int> ConnectionTable::OnAccepted(int fd, net::HostPort peer, absl::Time now) {
  // If `fd` is in let_in_, the earlier connection with this descriptor has ended.
  if (const auto former = let_in_.find(fd); former != let_in_.end()) Erase(former);
  std::optional<int> leaving;
  if (waiting_.size() >= static_cast<size_t>(limits_.max_waiting)) {
    const auto dispensable = Dispensable();
    leaving = dispensable->first;
    waiting_.erase(dispensable);
  }
  waiting_[fd] = {std::move(peer), now, now + limits_.patience};
  return leaving;
}

ConnectionTable::WaitingMap::iterator ConnectionTable::Dispensable() {
  // Number of waiting connections per address. Held ones are not counted.
  absl::flat_hash_map<absl::string_view, int> num_of_address;
  for (const auto& [fd, waiting] : waiting_) {
    if (waiting.state != State::kHeld) ++num_of_address[waiting.peer.host];
  }
  using Rank = std::tuple<bool, bool, int, State, absl::Time>;
  auto first = waiting_.end();
  Rank first_rank;
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const Waiting& waiting = it->second;
    const std::string& address = waiting.peer.host;
    const bool is_held = waiting.state == State::kHeld;
    const Rank rank = {is_held, IsLoopback(address), is_held ? 0 : -num_of_address[address],
                       waiting.state, waiting.since};
    if (first != waiting_.end() && first_rank <= rank) continue;
    first = it;
    first_rank = rank;
  }
  return first;
}

std::optional<int> ConnectionTable::MakeRoom() {
  const auto dispensable = Dispensable();
  if (dispensable == waiting_.end() || dispensable->second.state == State::kHeld) {
    return std::nullopt;
  }
  const int fd = dispensable->first;
  waiting_.erase(dispensable);
  return fd;
}

void ConnectionTable::OnHeld(int fd, absl::Time deadline) { SetState(fd, State::kHeld, deadline); }

void ConnectionTable::OnRefused(int fd, absl::Time deadline) {
  SetState(fd, State::kRefused, deadline);
}

void ConnectionTable::SetState(int fd, State state, absl::Time deadline) {
  const auto it = waiting_.find(fd);
  if (it == waiting_.end()) return;
  it->second.state = state;
  it->second.deadline = deadline;
}

void ConnectionTable::Forget(int fd) { waiting_.erase(fd); }

std::optional<RefusalReason> ConnectionTable::LetIn(int fd, absl::Time now) {
  const auto it = waiting_.find(fd);
  std::optional<RefusalReason> refusal = Judge(it->second.peer.host);
  if (refusal.has_value() && now - last_sweep_ >= kSweepPause) {
    Sweep(now);
    refusal = Judge(it->second.peer.host);
  }
  if (refusal.has_value()) return refusal;
  if (!TakeNew(it->second.peer.host, now)) return RefusalReason::kTooFast;
  const std::optional<FileIdentity> identity = identify_(fd);
  if (identity.has_value()) {
    std::erase(closed_, it->second.peer);
    ++num_of_address_[it->second.peer.host];
    let_in_[fd] = {std::move(it->second.peer), *identity};
  }
  waiting_.erase(it);
  return std::nullopt;
}

std::optional<int> ConnectionTable::Find(const net::HostPort& peer) const {
  for (const auto& [fd, connection] : let_in_) {
    if (connection.peer == peer && identify_(fd) == connection.identity) return fd;
  }
  return std::nullopt;
}

ConnectionState ConnectionTable::StateOf(const net::HostPort& peer) const {
  const std::optional<int> open = Find(peer);
  if (open.has_value()) {
    const bool was_closed = was_closed_(let_in_.at(*open).identity);
    return was_closed ? ConnectionState::kClosed : ConnectionState::kOpen;
  }
  // No open connection of the peer is known. The last one may still be in let_in_, until the next
  // sweep. If the other end had closed it, the peer is in `closed_` after that.
  const bool was_closed =
      std::any_of(let_in_.begin(), let_in_.end(),
                  [&](const auto& it) {
                    return it.second.peer == peer && was_closed_(it.second.identity);
                  }) ||
      std::find(closed_.begin(), closed_.end(), peer) != closed_.end();
  return was_closed ? ConnectionState::kClosed : ConnectionState::kUnknown;
}

std::optional<RefusalReason> ConnectionTable::Judge(const std::string& address) const {
  const bool is_here = IsLoopback(address);
  const int kept = is_here ? 0 : limits_.kept_for_this_machine;
  if (static_cast<int64_t>(let_in_.size()) >= limits_.max_connections - kept) {
    return RefusalReason::kTooMany;
  }
  const auto of_address = num_of_address_.find(address);
  if (of_address != num_of_address_.end() && !is_here &&
      of_address->second >= limits_.per_address()) {
    return RefusalReason::kTooManyOfAddress;
  }
  return std::nullopt;
}

double ConnectionTable::NewOnesLeft(const Pace& pace, absl::Time now) const {
  const double minutes = std::max(0.0, absl::FDivDuration(now - pace.as_of, absl::Minutes(1)));
  return std::min<double>(limits_.max_new_per_address,
                          pace.left + minutes * limits_.new_per_minute);
}

bool ConnectionTable::TakeNew(const std::string& address, absl::Time now) {
  if (IsLoopback(address)) return true;
  const Pace all = {static_cast<double>(limits_.max_new_per_address), now};
  Pace& pace = paces_.try_emplace(address, all).first->second;
  const double left = NewOnesLeft(pace, now);
  if (left < 1.0) return false;
  pace = {left - 1.0, now};
  return true;
}

std::vector<int> ConnectionTable::Overdue(absl::Time now) const {
  std::vector<int> overdue;
  for (const auto& [fd, waiting] : waiting_) {
    if (waiting.deadline <= now) overdue.push_back(fd);
  }
  return overdue;
}

absl::Time ConnectionTable::next_deadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [fd, waiting] : waiting_) next = std::min(next, waiting.deadline);
  return next;
}

void ConnectionTable::Sweep(absl::Time now) {
  last_sweep_ = now;
  for (auto it = let_in_.begin(); it != let_in_.end();) {
    it = identify_(it->first) == it->second.identity ? std::next(it) : Erase(it);
  }
  std::erase_if(paces_, [&](const auto& it) {
    return NewOnesLeft(it.second, now) >= limits_.max_new_per_address;
  });
}

ConnectionTable::LetInMap::iterator ConnectionTable::Erase(LetInMap::iterator connection) {
  const auto of_address = num_of_address_.find(connection->second.peer.host);
  if (--of_address->second == 0) num_of_address_.erase(of_address);
  if (was_closed_(connection->second.identity)) {
    closed_.push_back(std::move(connection->second.peer));
    if (closed_.size() > kMaxClosed) closed_.pop_front();
  }
  return let_in_.erase(connection);
}

}  // namespace lodestar::firewall
