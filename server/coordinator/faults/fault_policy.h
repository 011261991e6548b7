// Which worker is to blame for numbers that cannot be right, which names are shut out, and whether
// a run that has diverged goes back once more. The policy decides and remembers. The caller passes
// facts in, and words and carries out the verdicts.
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
#include "server/coordinator/faults/quarantine.h"
#include "server/coordinator/faults/worker_faults.h"

namespace lodestar {

// A worker that has sent something to this life of the servers.
struct Sender {
  WorkerId worker;
  // The name in the certificate of the worker. Empty means that the worker has no certificate.
  // Workers of one certificate are one sender, because a certificate is good for many names.
  absl::string_view identity = {};
  bool is_member = false;  // The worker is alive and has joined.
};

// What follows from a round in which a worker sent numbers far from those of the others.
struct SenderVerdict {
  enum class Kind : uint8_t {
    kRepeat,     // The round was counted before.
    kCounted,    // The round is counted, and nothing else follows.
    kShutOut,    // There were more such rounds than the limit. The count begins anew.
    kUndecided,  // There were as many, but one certificate has half of the other members or more.
  };
  Kind kind = Kind::kRepeat;
  // The number of such rounds of the sender among the last DivergencePolicy::kPoisonWindow rounds.
  int times = 0;
  std::string leading_identity = {};  // of kUndecided: the certificate of the others
  friend bool operator==(const SenderVerdict&, const SenderVerdict&) = default;
};

// What follows from numbers of a worker that are not finite.
struct NotFiniteVerdict {
  enum class Kind : uint8_t {
    kRepeat,    // This life of the worker was counted before.
    kDrop,      // The life of the worker ends. Numbers of other members are finite.
    kDiverged,  // No member is left whose last numbers were finite or are still to come.
  };
  Kind kind = Kind::kRepeat;
  // What follows for the sender, if the round counts against it. Else nothing follows.
  SenderVerdict sender = {};
  friend bool operator==(const NotFiniteVerdict&, const NotFiniteVerdict&) = default;
};

// A server has lost its memory, or an operator has ordered it, and all went back.
struct Setback {
  // An order by psctl rollback.
  struct Order {
    int64_t most_rounds = 0;  // to go back to
    std::string reason;       // in the operator's words
  };

  int64_t rounds_done = 0;  // before
  std::string why;
  std::optional<Order> order = std::nullopt;  // until all are back
};

// Where the run diverged last.
struct Divergence {
  Round round;
  std::string text;  // for people
  absl::Time at;
};

class FaultPolicy {
 public:
  // What outlives the coordinator's process, beside the shut-out names and the faults of workers.
  struct Memory {
    uint64_t finite_reports = 0;       // of all workers
    int64_t rollbacks = 0;             // after divergences
    double learning_rate_scale = 1.0;  // by rollbacks and operators
    // The part of operators in it. The factor of a rollback may have been another one before.
    double scale_by_operators = 1.0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit FaultPolicy(const DivergencePolicy& limits) : limits_(limits) {}
  const DivergencePolicy& limits() const { return limits_; }
  const Memory& memory() const { return memory_; }
  void Resume(const Memory& memory) { memory_ = memory; }

  // Workers.
  void BeginLife(WorkerId worker, bool is_same_process) {
    workers_[worker].BeginLife(is_same_process);
  }
  void CountFinite(WorkerId worker);
  // The worker's numbers are not finite. A life counts once. `senders` are all workers, also those
  // whose lives have ended.
  NotFiniteVerdict CountNotFinite(WorkerId worker, Incarnation incarnation, Round round,
                                  absl::Span<const Sender> senders);
  // What the worker sent in this round is far longer than what others sent, or opposes it.
  SenderVerdict CountPoisoned(WorkerId worker, Round round, absl::Span<const Sender> senders);
  // How often in a row the worker's newest process has sent what is not finite.
  int times_not_finite(WorkerId worker) const { return MemoryOf(worker).times_not_finite; }
  bool IsSick(WorkerId worker) const { return times_not_finite(worker) >= limits_.nonfinite_limit; }
  WorkerFaults::Memory MemoryOf(WorkerId worker) const;
  void Resume(WorkerId worker, WorkerFaults::Memory memory) {
    workers_[worker] = WorkerFaults(std::move(memory));
  }
  void Forget(WorkerId worker) { workers_.erase(worker); }
  void ForgetWorkers() { workers_.clear(); }

  // Names that are shut out.
  const Quarantine& quarantine() const { return quarantine_; }
  void ShutOut(Quarantine::Entry entry) { quarantine_.Add(std::move(entry)); }
  // Returns false if nothing shuts the name out.
  bool Readmit(absl::string_view name) { return quarantine_.Remove(name); }
  void Resume(Quarantine::Memory memory) { quarantine_ = Quarantine(std::move(memory)); }

  // The run.
  // Returns whether the run goes back, with a lower learning rate; this is counted then. `may_go`:
  // nothing else keeps the run from going back.
  bool OnDiverged(Divergence divergence, bool may_go);
  const std::optional<Divergence>& last_divergence() const { return last_divergence_; }
  // As an operator wants it: times `factor` of what it is.
  void MultiplyLearningRateScale(double factor);
  void SetBack(Setback setback) { setback_ = std::move(setback); }
  const std::optional<Setback>& setback() const { return setback_; }  // the last one

 private:
  SenderVerdict Judge(WorkerId worker, absl::Span<const Sender> senders);

  DivergencePolicy limits_;
  Memory memory_;
  std::map<WorkerId, WorkerFaults> workers_;
  Quarantine quarantine_;  // over all lives of the servers
  std::optional<Divergence> last_divergence_;
  std::optional<Setback> setback_;
};

}  // namespace lodestar
