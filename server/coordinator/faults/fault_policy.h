// SPDX-License-Identifier: Apache-2.0

// FaultPolicy decides three things: which worker is to blame for numbers that cannot be right,
// which names are shut out, and whether a run that has diverged is rolled back. The policy decides
// and remembers. The caller passes facts in, writes the messages and carries out the verdicts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/coordinator/faults/divergence_policy.h"
#include "server/coordinator/faults/equal_losses.h"
#include "server/coordinator/faults/quarantine.h"
#include "server/coordinator/faults/worker_faults.h"

namespace lodestar::faults {

// A worker that has sent something to this incarnation of the servers.
struct Sender {
  WorkerId worker;
  // Name in the worker's certificate. Empty means that the worker has no certificate. Workers with
  // the same certificate count as one sender, because many workers may use one certificate.
  absl::string_view identity = {};
  bool is_member = false;  // The worker is alive and has joined.
};

// Decision about a sender, after one of its contributions was far longer than those of the other
// members, or pointed in the opposite direction.
struct SenderVerdict {
  enum class Kind : uint8_t {
    kRepeat,   // The round was counted before.
    kCounted,  // The round is counted, and nothing else follows.
    // The sender must be shut out. Its contributions were wrong in more rounds than the limit. Its
    // count of such rounds returns to 0.
    kShutOut,
    // The sender's contributions were wrong in more rounds than the limit, but it is not shut out.
    // At least half of the other members, and at least two, use one certificate. They may be the
    // wrong ones.
    kUndecided,
  };
  Kind kind = Kind::kRepeat;
  // Number of rounds in which the sender's contributions were wrong, among the last
  // DivergencePolicy::kPoisonWindow rounds.
  int times = 0;
  // Set only with kUndecided: the certificate that at least half of the other members use.
  std::string leading_identity = {};
  friend bool operator==(const SenderVerdict&, const SenderVerdict&) = default;
};

// Decision after a worker has sent numbers that are not finite.
struct NotFiniteVerdict {
  enum class Kind : uint8_t {
    kRepeat,    // This life of the worker was recorded before.
    kDrop,      // The life of the worker must be ended. Numbers of other members are finite.
    kDiverged,  // No member is left whose last numbers were finite or are still to come.
  };
  Kind kind = Kind::kRepeat;
  // Decision about the sender if the round was counted as poisoned. kRepeat means that it was not
  // counted.
  SenderVerdict sender = {};
  friend bool operator==(const NotFiniteVerdict&, const NotFiniteVerdict&) = default;
};

// A return of all servers to a checkpoint. The reason is that a server lost its memory, or that an
// operator ordered the return.
struct Setback {
  // An order by `psctl rollback`.
  struct Order {
    int64_t most_rounds = 0;  // maximum number of rounds done after the return
    std::string reason;       // in the operator's words
  };

  int64_t rounds_done = 0;  // number of rounds done before the return
  std::string why;
  // Set if an operator has ordered the return, until all servers have returned.
  std::optional<Order> order = std::nullopt;
};

// The last divergence of the run.
struct Divergence {
  Round round;
  std::string text;  // message for operators
  absl::Time at;
};

class FaultPolicy {
 public:
  // The state that outlives the coordinator's process. The names that are shut out and the faults
  // of workers are stored separately.
  struct Memory {
    uint64_t finite_reports = 0;       // number from all workers
    int64_t rollbacks = 0;             // number of roll-backs after divergences
    double learning_rate_scale = 1.0;  // product of the changes by roll-backs and operators
    // The part of learning_rate_scale that comes from operators. It cannot be computed from
    // `rollbacks`, because a restart may have changed the factor of a roll-back.
    double scale_by_operators = 1.0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit FaultPolicy(const DivergencePolicy& limits) : limits_(limits) {}
  const DivergencePolicy& limits() const { return limits_; }
  const Memory& memory() const { return memory_; }
  void Resume(const Memory& memory) { memory_ = memory; }

  void BeginLife(WorkerId worker, bool is_same_process) {
    workers_[worker].BeginLife(is_same_process);
  }
  void CountFinite(WorkerId worker);
  // Records that the worker sent numbers that are not finite. Further calls for the same life
  // return kRepeat. `senders` are all workers, including workers whose lives have ended.
  NotFiniteVerdict CountNotFinite(WorkerId worker, Incarnation incarnation, Round round,
                                  absl::Span<const Sender> senders);
  // Records that the worker's contribution to this round is far longer than those of the others, or
  // points in the opposite direction.
  SenderVerdict CountPoisoned(WorkerId worker, Round round, absl::Span<const Sender> senders);
  // Returns how many times in a row the worker's newest process has sent numbers that are not
  // finite.
  int times_not_finite(WorkerId worker) const { return MemoryOf(worker).times_not_finite; }
  bool IsSick(WorkerId worker) const { return times_not_finite(worker) >= limits_.nonfinite_limit; }
  WorkerFaults::Memory MemoryOf(WorkerId worker) const;
  void Resume(WorkerId worker, WorkerFaults::Memory memory) {
    workers_[worker] = WorkerFaults(std::move(memory));
  }
  void Forget(WorkerId worker) {
    workers_.erase(worker);
    equal_losses_.Forget(worker);
  }
  void ForgetWorkers() {
    workers_.clear();
    equal_losses_.ForgetAll();
  }
  // Records the worker's loss of this round. Returns a worker that seems to train on the same
  // samples, see EqualLosses::OnReport().
  std::optional<WorkerId> OnLoss(WorkerId worker, Round round, double loss) {
    return equal_losses_.OnReport(worker, round, loss);
  }

  const Quarantine& quarantine() const { return quarantine_; }
  void ShutOut(Quarantine::Entry entry) { quarantine_.Add(std::move(entry)); }
  // Lets the worker or the certificate `name` in again. Returns false if it was not shut out.
  bool Readmit(absl::string_view name) { return quarantine_.Remove(name); }
  void Resume(Quarantine::Memory memory) { quarantine_ = Quarantine(std::move(memory)); }

  // Records that the run has diverged. Returns true if the run must be rolled back with a lower
  // learning rate. The roll-back is then counted. Returns false if `may_go` is false.
  bool OnDiverged(Divergence divergence, bool may_go);
  const std::optional<Divergence>& last_divergence() const { return last_divergence_; }
  // Multiplies the learning rate scale by `factor`, because an operator has ordered it.
  void MultiplyLearningRateScale(double factor);
  void SetBack(Setback setback) { setback_ = std::move(setback); }
  const std::optional<Setback>& setback() const { return setback_; }  // the last setback

 private:
  SenderVerdict Judge(WorkerId worker, absl::Span<const Sender> senders);

  DivergencePolicy limits_;
  Memory memory_;
  std::map<WorkerId, WorkerFaults> workers_;
  EqualLosses equal_losses_;  // not remembered over a restart of the coordinator
  Quarantine quarantine_;     // kept over all incarnations of the servers
  std::optional<Divergence> last_divergence_;
  std::optional<Setback> setback_;
};

}  // namespace lodestar::faults
