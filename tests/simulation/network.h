// Network: how processes of a World talk, and everything that can go wrong with it. Unary calls may
// overtake each other, get lost on the way there or back, arrive after the caller has given up, and
// are never repeated by the network; messages of one stream keep their order, and if one is lost,
// the stream breaks.
//
// A path between two processes can be slow; silent (what is sent arrives later: a firewall that
// drops, a cable that is out; after kKeepalive the streams over it break); cut (everything under
// way is lost, and new attempts fail at once); or lossy (what is sent is lost, and nothing breaks:
// a proxy that swallows whole frames).
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

// Whether the other end, or a proxy, has closed the connection in order; else it broke.
bool IsClosedByPeer(const absl::Status& end);

// Two processes have two connections, which fail apart: for calls and commands, and for weights.
enum class Lane : uint8_t { kControl, kBulk };

// A call, as its caller has it. A caller that drops the handle may still be called back.
class UnaryCall {
 public:
  using Failure = absl::AnyInvocable<void(const absl::Status&)>;

  // Neither the answer nor a failure is wanted any more.
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

// A call, where it is answered. When the last copy goes without Reply(), the caller finds the
// connection closed.
class Responder {
 public:
  // `arrive` happens at the caller, unless the call is over there.
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

  // `arrive` happens at the other side, after all that was sent before.
  void Send(Side from, World::Callback arrive);
  // `broken` is called once, when the stream breaks or the other side closes it, and is emptied
  // then.
  void OnBroken(Side side, Broken broken) { ends_[side].broken = std::move(broken); }
  // This side wants no more of it; the other side hears `status` after all that was sent.
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

  // The process has ended. `with_machine` means that its machine has as well: no other process is
  // told of the end until the machine is back.
  void OnEnded(const Process& process, bool with_machine);
  void OnBegun(const Process& process);

  void Cut(const Process& a, const Process& b, Lane lane, absl::Duration duration);
  // A proxy between them ends, and closes all connections. Another one is there after `duration`.
  void RestartProxy(const Process& a, const Process& b, absl::Duration duration);
  // Holds up what both send, or only what `a` sends.
  void Silence(const Process& a, const Process& b, Lane lane, bool both_ways,
               absl::Duration duration);
  void SlowDown(const Process& a, const Process& b, Lane lane, absl::Duration longest_delay,
                absl::Duration duration);
  // Loses what `from` sends. Its streams lack that, and stay.
  void Lose(const Process& from, const Process& to, Lane lane, absl::Duration duration);
  // All paths are as good as new; what was held up before arrives when it would have.
  void Heal();
  // When the last of it does.
  absl::Time held_up_until() const { return held_up_until_; }

 private:
  friend class Responder;
  friend class Stream;

  struct Path {
    int64_t epoch = 0;  // grows when all that is under way is lost
    absl::Time cut_until = absl::InfinitePast();
    absl::Time slow_until = absl::InfinitePast();
    absl::Duration slow_delay;
  };
  using Ends = std::tuple<const Process*, const Process*, Lane>;

  Path& PathOf(const Process& a, const Process& b, Lane lane);
  bool Loses(const Process& from, const Process& to, Lane lane) const;
  absl::Time SilentUntil(const Process& from, const Process& to, Lane lane) const;
  // When something that is sent now is there.
  absl::Time Arrival(const Process& from, const Process& to, Lane lane);
  // One message that stands alone. If it is lost, it is destroyed.
  void Send(Process& from, Process& to, Lane lane, World::Callback arrive);
  void BreakStreams(const Process& a, const Process* b, Lane lane, const absl::Status& status);
  void LookAtDeadlines();
  void Fail(const std::shared_ptr<UnaryCall>& call, const absl::Status& status);

  World* const world_;
  const absl::Duration longest_delay_;
  std::map<Ends, Path> paths_;                                   // by the lower address first
  std::map<Ends, absl::Time> silent_until_;                      // by sender and receiver
  std::map<Ends, absl::Time> loses_until_;                       // by sender and receiver
  std::map<const Process*, std::vector<World::Callback>> dark_;  // sent to machines that are off
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<UnaryCall>> calls_;
  absl::Time held_up_until_ = absl::InfinitePast();
  std::vector<World::Callback> lost_;  // kept, so that no caller learns of it
};

}  // namespace lodestar::simulation
