// ConnectionTable knows how many connections a port has and may have. Some have not been let in,
// because nothing or not enough has come from them, or because they are being told that they are
// refused. The others were let in. The class is pure: time is given, and what a file descriptor
// stands for is asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/host_port.h"

namespace lodestar::firewall {

// Why a connection was refused.
enum class RefusalReason : uint8_t {
  kSilent,            // said nothing, or too little, for too long, or while others needed its place
  kTooMany,           // in all
  kTooManyOfAddress,  // of one
  kTooFast,           // of one, one after the other
  kNoGrpc,            // speaks something else
  kWrongSecurity,     // TLS where there is none, or none where it is wanted
  kOldTls,            // TLS 1.2 or less
  kNotServing,        // the server has not begun to
  kNoFile,            // this process may not open more files
};
inline constexpr size_t kNumRefusals = 9;

// "silent", "too many".
absl::string_view RefusalName(RefusalReason refusal);

struct ConnectionCounts {
  int64_t connections = 0;  // that were let in and live
  int64_t max_connections = 0;
  uint64_t accepted = 0;  // since the port was opened, those that were refused later, too
  std::array<uint64_t, kNumRefusals> refused = {};

  uint64_t refused_for(RefusalReason refusal) const {
    return refused[static_cast<size_t>(refusal)];
  }
};

struct ConnectionLimits {
  int max_connections = 4096;  // that are let in
  // This is the limit for one address of another machine. 0 means a quarter of all.
  int max_per_address = 0;
  // So many connections may wait to be let in. One more takes the place of one of them: see
  // OnAccepted().
  int max_waiting = 256;
  absl::Duration patience = absl::Seconds(10);  // with one that waits
  // So many of max_connections are kept for programs of this machine.
  int kept_for_this_machine = 0;
  // One address of another machine may make so many new connections at once, and so many in a
  // minute after that. Otherwise it would mean little to end a connection that floods the server.
  int max_new_per_address = 256;
  int new_per_minute = 600;

  int per_address() const;
};

// `limits`, or less where a process that may have `max_files` open files could not have as many
// connections beside the files that it needs.
ConnectionLimits LimitToFiles(ConnectionLimits limits, int64_t max_files);

// ConnectionState says what has become of a connection that was let in.
enum class ConnectionState : uint8_t {
  kUnknown,  // It was never let in, or this process has ended it, or a timeout, or long ago.
  kOpen,
  kClosed,  // The other end has closed or reset it.
};

class ConnectionTable {
 public:
  // Two files that are open one after the other under one number differ in it.
  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  // Returns the file of a descriptor. It is not set if there is none.
  using Identify = std::function<std::optional<FileIdentity>(int fd)>;
  // Whether the other end has closed or reset the connection whose file is, or was, this.
  using WasClosed = std::function<bool(const FileIdentity&)>;

  ConnectionTable(const ConnectionLimits& limits, Identify identify, WasClosed was_closed);

  // A connection has come, and waits. Returns the connection that has to go for it, which is closed
  // and forgotten. Held connections go last, and those of this machine just before them. Of the
  // others, those of the address that has most of them go first, so that a crowd of one address
  // makes room for itself and for no other. Of that address the refused ones go first, then the
  // silent ones; the oldest of these goes first.
  std::optional<int> OnAccepted(int fd, HostPort peer, absl::Time now);
  // The one that OnAccepted() would choose, if it is not held: it is closed and forgotten.
  std::optional<int> MakeRoom();
  // It has said what it is, and is held until `deadline`.
  void OnHeld(int fd, absl::Time deadline);
  // It is being told until `deadline` that it is refused.
  void OnRefused(int fd, absl::Time deadline);
  // It does not wait any more: it is closed.
  void Forget(int fd);
  // A connection that waits is let in, unless one of the limits is reached: then it waits on.
  std::optional<RefusalReason> LetIn(int fd, absl::Time now);
  // The connection of `peer` that was let in and lives.
  std::optional<int> Find(const HostPort& peer) const;
  // Returns what has become of the newest connection of `peer`. kOpen also stands for one whose
  // other end is gone, if gRPC has not read so yet.
  ConnectionState StateOf(const HostPort& peer) const;

  // Returns the connections that have waited for too long.
  std::vector<int> Overdue(absl::Time now) const;
  absl::Time next_deadline() const;
  // Forgets those that were let in and live no more.
  void Sweep(absl::Time now);
  absl::Time last_sweep() const { return last_sweep_; }
  // Visits those that were alive at the last sweep.
  void ForEachLetIn(absl::FunctionRef<void(int fd, const std::string& address)> visit) const {
    for (const auto& [fd, connection] : let_in_) visit(fd, connection.peer.host);
  }

  const ConnectionLimits& limits() const { return limits_; }
  size_t num_waiting() const { return waiting_.size(); }
  size_t num_let_in() const { return let_in_.size(); }

 private:
  // In the order in which they make room for others.
  enum class State : uint8_t { kRefused, kSilent, kHeld };
  struct Waiting {
    HostPort peer;
    absl::Time since;
    absl::Time deadline;
    State state = State::kSilent;
  };
  using WaitingMap = std::map<int, Waiting>;
  struct LetInConnection {
    HostPort peer;
    FileIdentity identity;
  };
  using LetInMap = std::map<int, LetInConnection>;

  // The one that makes room for another.
  WaitingMap::iterator Dispensable();
  void SetState(int fd, State state, absl::Time deadline);
  // A Pace is what is left of max_new_per_address.
  struct Pace {
    double left = 0.0;
    absl::Time as_of;
  };

  std::optional<RefusalReason> Judge(const std::string& address) const;
  double NewOnesLeft(const Pace& pace, absl::Time now) const;
  // Whether another one may come now; it is counted.
  bool TakeNew(const std::string& address, absl::Time now);
  LetInMap::iterator Erase(LetInMap::iterator connection);

  const ConnectionLimits limits_;
  const Identify identify_;
  const WasClosed was_closed_;
  // The key is the file descriptor.
  WaitingMap waiting_;
  LetInMap let_in_;
  std::deque<HostPort> closed_;  // peers of connections that the other end has closed: the last
  std::map<std::string, int> num_of_address_;  // that were let in
  std::map<std::string, Pace> paces_;          // of addresses that have not got all of it back yet
  absl::Time last_sweep_ = absl::InfinitePast();
};

}  // namespace lodestar::firewall
