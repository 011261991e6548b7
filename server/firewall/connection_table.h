// SPDX-License-Identifier: Apache-2.0

// ConnectionTable holds the connections of a port, and limits their number. A connection first
// waits: it has not sent enough bytes, or is being refused. Then it is let in or closed. The class
// does no I/O: the caller passes in the time and functions that ask the system.
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

// Reason for which a connection was refused.
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

// Returns a name such as "silent" or "too many" for the log.
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
  // Maximum number of waiting connections. If one more comes, another one must be closed: see
  // OnAccepted().
  int max_waiting = 256;
  absl::Duration patience = absl::Seconds(10);  // how long a connection may wait
  // Part of max_connections that is reserved for programs on this machine.
  int kept_for_this_machine = 0;
  // A remote address may make `max_new_per_address` new connections at once, and then
  // `new_per_minute` per minute. Without this limit, a client whose connection was ended for
  // flooding could come back at once.
  int max_new_per_address = 256;
  int new_per_minute = 600;

  int per_address() const;
};

// Returns `limits`, lowered if needed: of `max_files` open files, enough must be left for journals
// and other files.
ConnectionLimits LimitToFiles(ConnectionLimits limits, int64_t max_files);

// State of a connection that was let in.
enum class ConnectionState : uint8_t {
  kUnknown,  // never let in, ended by this process or a timeout, or ended long ago
  kOpen,
  kClosed,  // the other end has closed or reset it
};

class ConnectionTable {
 public:
  // Identity of an open file. If a descriptor is used again, its new file has another identity.
  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  // Returns the identity of the file behind `fd`. Not set means that `fd` is not open.
  using Identify = std::function<std::optional<FileIdentity>(int fd)>;
  // Returns true if the other end has closed or reset the connection with this identity. This
  // process may have closed it too by now.
  using WasClosed = std::function<bool(const FileIdentity&)>;

  ConnectionTable(const ConnectionLimits& limits, Identify identify, WasClosed was_closed);

  // Adds a new connection, which waits. If max_waiting connections wait already, forgets one of
  // them and returns it. The caller must close it. The choice follows these rules, the most
  // important one first:
  // - Held connections are chosen last.
  // - Connections from this machine are chosen after those from other machines.
  // - Connections from the address with the most waiting connections are chosen first. So many
  //   connections from one address displace only each other.
  // - Refused connections are chosen before silent ones, and older ones before newer ones.
  std::optional<int> OnAccepted(int fd, net::HostPort peer, absl::Time now);
  // Forgets a waiting connection, chosen as in OnAccepted(), and returns it. The caller must close
  // it. Returns nothing if all waiting connections are kHeld. A held connection stays open.
  std::optional<int> MakeRoom();
  // Must be called when a connection for gRPC has to wait until the server serves, at most until
  // `deadline`.
  void OnHeld(int fd, absl::Time deadline);
  // Must be called when the connection is refused. It stays open until `deadline` at most, so that
  // its peer can read the refusal.
  void OnRefused(int fd, absl::Time deadline);
  // Must be called when a waiting connection is closed.
  void Forget(int fd);
  // Lets in a waiting connection. If a limit is reached, returns the reason, and the connection
  // still waits.
  std::optional<RefusalReason> LetIn(int fd, absl::Time now);
  // Returns the open connection of `peer` that was let in.
  std::optional<int> Find(const net::HostPort& peer) const;
  // Returns the state of the newest connection of `peer`. If the other end is gone and gRPC has not
  // noticed that yet, the state is kOpen.
  ConnectionState StateOf(const net::HostPort& peer) const;

  // Returns the waiting connections whose deadline has passed.
  std::vector<int> Overdue(absl::Time now) const;
  absl::Time next_deadline() const;
  // Forgets the connections that were let in and are closed now.
  void Sweep(absl::Time now);
  absl::Time last_sweep() const { return last_sweep_; }
  // Visits the connections that were let in and were still open at the last sweep.
  void ForEachLetIn(absl::FunctionRef<void(int fd, const std::string& address)> visit) const {
    for (const auto& [fd, connection] : let_in_) visit(fd, connection.peer.host);
  }

  const ConnectionLimits& limits() const { return limits_; }
  size_t num_waiting() const { return waiting_.size(); }
  size_t num_let_in() const { return let_in_.size(); }

 private:
  // The order matters: of two connections from one address, the one in the earlier state must make
  // room first.
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

  // Returns the waiting connection that must be closed if room is needed: see OnAccepted().
  WaitingMap::iterator Dispensable();
  void SetState(int fd, State state, absl::Time deadline);
  // A Pace says how many new connections an address may still make: `left` at the time `as_of`.
  struct Pace {
    double left = 0.0;
    absl::Time as_of;
  };

  std::optional<RefusalReason> Judge(const std::string& address) const;
  double NewOnesLeft(const Pace& pace, absl::Time now) const;
  // Counts a new connection of the address. Returns false, without counting, if the address has
  // made too many.
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
