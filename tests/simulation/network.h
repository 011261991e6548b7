// SPDX-License-Identifier: Apache-2.0

// Network connects the processes of a World, with everything that can go wrong. Unary calls may
// overtake each other, get lost on the way there or back, or arrive after the caller has given up;
// the network never repeats them. Messages of one stream keep their order. If one message is lost,
// the stream breaks.
//
// A path between two processes can be:
//   slow;
//   silent: messages arrive later, as with a firewall that drops packets or an unplugged cable;
//   after
//   kKeepalive the streams over the path break;
//   cut: everything under way is lost, and new attempts fail at once;
//   lossy: messages are lost, and no stream breaks, as with a proxy that drops whole frames.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

class Network;

// Returns true if the other end, or a proxy, has closed the connection in order. False means that
// the connection broke.
bool IsClosedByPeer(const absl::Status& end);

// Two processes have two connections, which fail independently: one for calls and commands, and one
// for weights.
enum class Lane : uint8_t { kControl, kBulk };

// The caller's side of a call. If the caller drops the handle, it may still be called back.
class UnaryCall {
 public:
  using Failure = absl::AnyInvocable<void(const absl::Status&)>;

  // Says that neither the answer nor a failure is wanted any more.
  void Cancel() { is_open_ = false; }
  bool is_open() const { return is_open_; }

 private:
  friend class Network;
  friend class Responder;

  bool is_open_ = true;
  Process* caller_ = nullptr;
  Process* callee_ = nullptr;
  Lane lane_ = Lane::kControl;
  int64_t caller_life_ = 0;
  absl::Time deadline_;
  Failure failed_;
};

// The side of a call that answers. If the last copy is destroyed without Reply(), the caller is
// told that the connection is closed.
class Responder {
 public:
  // Answers: runs `arrive` at the caller, unless the call is over there.
  void Reply(World::Callback arrive) const;

 private:
  friend class Network;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum Side : uint8_t { kClient, kServer };
  using Broken = absl::AnyInvocable<void(const absl::Status&)>;

  // Runs `arrive` at the other side, after all messages that were sent before.
  void Send(Side from, World::Callback arrive);
  // Sets `broken`, which is called once, when the stream breaks or the other side closes it, and is
  // destroyed then.
  void OnBroken(Side side, Broken broken) { ends_[side].broken = std::move(broken); }
  // Ends the stream from this side. The other side gets `status` after all messages that were sent
  // before.
  void Close(Side side, const absl::Status& status);
  bool is_open() const { return is_open_; }

 private:
  friend class Network;
  struct End {
    Process* process = nullptr;
    int64_t life = 0;
    absl::Time last_arrival;  // at the other side
    Broken broken;
  };

  void Break(const absl::Status& status);
  void TellEnd(Side side, absl::Duration delay, const absl::Status& status);

  Network* network_ = nullptr;
  Lane lane_ = Lane::kControl;
  bool is_open_ = true;
  End ends_[2];
};

class Network {
 public:
  static constexpr absl::Duration kKeepalive = absl::Seconds(20);

  Network(World* world, absl::Duration longest_delay);

  std::shared_ptr<UnaryCall> Call(Process& caller, Process& callee, Lane lane,
                                  absl::Duration timeout, absl::AnyInvocable<void(Responder)> serve,
                                  UnaryCall::Failure failed);
  std::shared_ptr<Stream> Open(Process& client, Process& server, Lane lane,
                               absl::AnyInvocable<void(std::shared_ptr<Stream>)> accept);

  // Called when the process has ended. `with_machine` means that its machine has ended, too: then
  // no other process learns of the end until the machine is back.
  void OnEnded(const Process& process, bool with_machine);
  void OnBegun(const Process& process);

  void Cut(const Process& a, const Process& b, Lane lane, absl::Duration duration);
  // Restarts a proxy between the two: it closes all connections, and new ones are possible after
  // `duration`.
  void RestartProxy(const Process& a, const Process& b, absl::Duration duration);
  // Holds back what both send, or only what `a` sends.
  void Silence(const Process& a, const Process& b, Lane lane, bool both_ways,
               absl::Duration duration);
  void SlowDown(const Process& a, const Process& b, Lane lane, absl::Duration longest_delay,
                absl::Duration duration);
  // Loses all messages from `from` to `to`. Its streams miss these messages, but do not break.
  void Lose(const Process& from, const Process& to, Lane lane, absl::Duration duration);
  // Repairs all paths. Messages that were held back before still arrive at their planned times.
  void Heal();
  // Returns when the last message that was held back arrives.
  absl::Time held_up_until() const { return held_up_until_; }

 private:
  friend class Responder;
  friend class Stream;

  struct Path {
    int64_t epoch = 0;  // grows when all messages under way are lost
    absl::Time cut_until = absl::InfinitePast();
    absl::Time slow_until = absl::InfinitePast();
    absl::Duration slow_delay;
  };
  using Ends = std::tuple<const Process*, const Process*, Lane>;

  Path& PathOf(const Process& a, const Process& b, Lane lane);
  bool Loses(const Process& from, const Process& to, Lane lane) const;
  absl::Time SilentUntil(const Process& from, const Process& to, Lane lane) const;
  // Returns when a message that is sent now arrives.
  absl::Time Arrival(const Process& from, const Process& to, Lane lane);
  // Sends one message outside of streams. If the message is lost, `arrive` is destroyed.
  void Send(Process& from, Process& to, Lane lane, World::Callback arrive);
  void BreakStreams(const Process& a, const Process* b, Lane lane, const absl::Status& status);
  void LookAtDeadlines();
  void Fail(const std::shared_ptr<UnaryCall>& call, const absl::Status& status);

  World* const world_;
  const absl::Duration longest_delay_;
  std::map<Ends, Path> paths_;               // keys have the lower address first
  std::map<Ends, absl::Time> silent_until_;  // by sender and receiver
  std::map<Ends, absl::Time> loses_until_;   // by sender and receiver
  // messages to machines that are off
  std::map<const Process*, std::vector<World::Callback>> dark_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<UnaryCall>> calls_;
  absl::Time held_up_until_ = absl::InfinitePast();
  std::vector<World::Callback> lost_;  // lost calls, kept so that no caller learns of the loss
};

}  // namespace lodestar::simulation
