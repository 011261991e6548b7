// SPDX-License-Identifier: Apache-2.0

// ConnectionTable holds the connections of a port, and decides how many there may be. A waiting
// connection has not sent enough bytes, or is being told that it is refused. All others were let
// in. The class does no I/O: the time is passed in, and a function returns the identity of a
// descriptor's file.
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
  kSilent,            // sent nothing or too little for too long, or while others needed its place
  kTooMany,           // too many connections in all
  kTooManyOfAddress,  // too many connections from one address
  kTooFast,           // too many new connections from one address within a short time
  kNoGrpc,            // speaks another protocol
  kWrongSecurity,     // TLS on a port without it, or no TLS on a port that requires it
  kOldTls,            // TLS 1.2 or less
  kNotServing,        // the server has not begun to serve
  kNoFile,            // this process may not open more files
};
inline constexpr size_t kNumRefusals = 9;

// Returns a name such as "silent" or "too many".
absl::string_view RefusalName(RefusalReason refusal);

struct ConnectionCounts {
  int64_t connections = 0;  // number of open connections that were let in
  int64_t max_connections = 0;
  uint64_t accepted = 0;  // since the port was opened, including those that were refused later
  std::array<uint64_t, kNumRefusals> refused = {};

  uint64_t refused_for(RefusalReason refusal) const {
    return refused[static_cast<size_t>(refusal)];
  }
};

struct ConnectionLimits {
  int max_connections = 4096;  // maximum number of connections that are let in
  // Maximum number of connections from one remote IP address. 0 means max_connections / 4.
  int max_per_address = 0;
  // Maximum number of connections that wait to be let in. If one more comes, it takes the place of
  // one of them: see OnAccepted().
  int max_waiting = 256;
  absl::Duration patience = absl::Seconds(10);  // how long a connection may wait
  // Part of max_connections that only programs on this machine may use.
  int kept_for_this_machine = 0;
  // Maximum number of new connections that one remote address may make at once, and how many more
  // per minute after that. The limit exists because a client whose connection was ended for
  // flooding could otherwise open another one at once.
  int max_new_per_address = 256;
  int new_per_minute = 600;

  int per_address() const;
};

// Returns `limits`, lowered so that a process that may have `max_files` open files has enough files
// for its other needs.
ConnectionLimits LimitToFiles(ConnectionLimits limits, int64_t max_files);

// ConnectionState says what has become of a connection that was let in.
enum class ConnectionState : uint8_t {
  kUnknown,  // never let in, ended by this process or a timeout, or ended long ago
  kOpen,
  kClosed,  // the other end has closed or reset it
};

class ConnectionTable {
 public:
  // Identity of an open file. If a file number is used again, the new file has another identity.
  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  // Returns the identity of a descriptor's file. It is not set if the descriptor is not open.
  using Identify = std::function<std::optional<FileIdentity>(int fd)>;
  // Returns true if the other end has closed or reset the connection whose file has, or had, this
  // identity.
  using WasClosed = std::function<bool(const FileIdentity&)>;

  ConnectionTable(const ConnectionLimits& limits, Identify identify, WasClosed was_closed);

  // Adds a new connection, which waits. If too many connections wait, forgets one of them and
  // returns it: the caller must close it. Held connections and those from this machine are chosen
  // last. Among the others, a connection from the address with the most connections is chosen, so
  // that many connections from one address make room only for each other. From that address,
  // refused connections are chosen first, then silent ones, the oldest first.
  std::optional<int> OnAccepted(int fd, net::HostPort peer, absl::Time now);
  // Forgets the connection that OnAccepted() would choose, and returns it: the caller must close
  // it. Returns nothing if only held connections wait.
  std::optional<int> MakeRoom();
  // Must be called when a gRPC client has made the connection and waits until `deadline` for the
  // server to serve.
  void OnHeld(int fd, absl::Time deadline);
  // Must be called when the connection is refused. Its peer has until `deadline` to read the
  // refusal.
  void OnRefused(int fd, absl::Time deadline);
  // Must be called when a waiting connection is closed.
  void Forget(int fd);
  // Lets in a connection that waits. Returns the reason if a limit is reached; then the connection
  // goes on waiting.
  std::optional<RefusalReason> LetIn(int fd, absl::Time now);
  // Returns the open connection of `peer` that was let in.
  std::optional<int> Find(const net::HostPort& peer) const;
  // Returns the state of the newest connection of `peer`. It is also kOpen if the other end is gone
  // and gRPC has not noticed it yet.
  ConnectionState StateOf(const net::HostPort& peer) const;

  // Returns the connections that have waited for too long.
  std::vector<int> Overdue(absl::Time now) const;
  absl::Time next_deadline() const;
  // Forgets the connections that were let in and have ended.
  void Sweep(absl::Time now);
  absl::Time last_sweep() const { return last_sweep_; }
  // Visits the connections that were let in and were open at the last sweep.
  void ForEachLetIn(absl::FunctionRef<void(int fd, const std::string& address)> visit) const {
    for (const auto& [fd, connection] : let_in_) visit(fd, connection.peer.host);
  }

  const ConnectionLimits& limits() const { return limits_; }
  size_t num_waiting() const { return waiting_.size(); }
  size_t num_let_in() const { return let_in_.size(); }

 private:
  // The states are in the order in which waiting connections make room for others.
  enum class State : uint8_t { kRefused, kSilent, kHeld };
  struct Waiting {
    net::HostPort peer;
    absl::Time since;
    absl::Time deadline;
    State state = State::kSilent;
  };
  using WaitingMap = std::map<int, Waiting>;
  struct LetInConnection {
    net::HostPort peer;
    FileIdentity identity;
  };
  using LetInMap = std::map<int, LetInConnection>;

  // Returns the connection that makes room for another.
  WaitingMap::iterator Dispensable();
  void SetState(int fd, State state, absl::Time deadline);
  // A Pace is the number of new connections that an address may still make.
  struct Pace {
    double left = 0.0;
    absl::Time as_of;
  };

  std::optional<RefusalReason> Judge(const std::string& address) const;
  double NewOnesLeft(const Pace& pace, absl::Time now) const;
  // Returns true if the address may make another connection now, and counts it.
  bool TakeNew(const std::string& address, absl::Time now);
  LetInMap::iterator Erase(LetInMap::iterator connection);

  const ConnectionLimits limits_;
  const Identify identify_;
  const WasClosed was_closed_;
  // The keys of the two maps are file descriptors.
  WaitingMap waiting_;
  LetInMap let_in_;
  std::deque<net::HostPort> closed_;  // peers of the last connections that the other end has closed
  std::map<std::string, int> num_of_address_;  // number of connections that were let in
  std::map<std::string, Pace> paces_;          // addresses whose Pace is below its maximum
  absl::Time last_sweep_ = absl::InfinitePast();
};

}  // namespace lodestar::firewall
