// Takes back a call that waits.
#pragma once

#include <atomic>
#include <memory>

namespace lodestar {

// Shared by the one who waits and the one who will answer: exactly one of them gets the call.
class CallTicket {
 public:
  // True for the first caller only.
  bool Claim() { return !claimed_.exchange(true, std::memory_order_acq_rel); }
  bool is_claimed() const { return claimed_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> claimed_{false};
};

// What a call that may wait returns. Copyable; dropping it cancels nothing.
class PendingCall {
 public:
  PendingCall() = default;
  explicit PendingCall(std::shared_ptr<CallTicket> ticket) : ticket_(std::move(ticket)) {}

  // True: the callback will not be called. False: it has been, or is being called now.
  bool Cancel() { return ticket_ != nullptr && ticket_->Claim(); }

 private:
  std::shared_ptr<CallTicket> ticket_;
};

}  // namespace lodestar
