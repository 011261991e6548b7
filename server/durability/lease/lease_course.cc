// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/lease_course.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lodestar::lease {
namespace {

// The last 1/kMarginParts of a lease is not used, because clocks differ.
constexpr int kMarginParts = 10;
constexpr int kRenewalsPerLease = 3;
// A claim must succeed within 1/kClaimParts of the lease. Otherwise the lease is revoked, and the
// next claim uses a new lease.
constexpr int kClaimParts = 2;
// Number of calls that try to give a lease back, in addition to one call for each endpoint.
constexpr int kExtraReleases = 1;
constexpr size_t kMaxShownBytes = 80;

std::string Describe(const LeaseKey& key) {
  const absl::StatusOr<LeaderClaim> claim = ParseLeaderClaim(key.value);
  std::string text =
      claim.ok() ? absl::StrCat(claim->Describe(), " (", claim->role, ")")
                 : absl::StrCat("another program, which has written '",
                                absl::CEscape(key.value.substr(0, kMaxShownBytes)), "' there");
  if (key.lease == 0) {
    absl::StrAppend(&text, ", without an etcd lease; the key stays until you delete it");
  }
  return text;
}

}  // namespace

LeaseCourse::LeaseCourse(Config config)
    : config_(std::move(config)), value_(FormatLeaderClaim(config_.claim)) {}

absl::Time LeaseCourse::deadline() const {
  return lease_->sent + lease_->ttl - lease_->ttl / kMarginParts;
}

std::optional<LeaseCall> LeaseCourse::Next(absl::Time now) {
  CheckDeadline(now);
  if (under_way_.has_value() || now < next_call_) return std::nullopt;
  std::optional<LeaseCall> call = Wanted(now);
  if (!call.has_value()) return std::nullopt;
  call->endpoint = endpoint_;
  call->timeout = config_.call_timeout;
  under_way_ = Sent{call->kind, now};
  return call;
}

std::optional<LeaseCall> LeaseCourse::Wanted(absl::Time now) {
  using Kind = LeaseCall::Kind;
  if (state_ == State::kLost) return std::nullopt;
  if (state_ == State::kReleased && lease_.has_value()) Abandon();
  if (abandoned_ != 0) return LeaseCall{.kind = Kind::kRevoke, .lease = abandoned_};
  if (state_ == State::kReleased) return std::nullopt;
  if (state_ == State::kHeld) {
    if (renewed_.has_value()) return LeaseCall{.kind = Kind::kRead};
    if (now < lease_->sent + lease_->ttl / kRenewalsPerLease) return std::nullopt;
    return LeaseCall{.kind = Kind::kKeepAlive, .lease = lease_->id};
  }
  // The answer to a claim may be lost although the claim has made the key. The key is free again
  // when this lease has been revoked or has ended.
  if (lease_.has_value() && now >= lease_->sent + lease_->ttl / kClaimParts) {
    Abandon();
    return LeaseCall{.kind = Kind::kRevoke, .lease = abandoned_};
  }
  if (lease_.has_value()) {
    return LeaseCall{.kind = Kind::kClaim, .lease = lease_->id, .value = value_};
  }
  if (is_key_free_) return LeaseCall{.kind = Kind::kGrant, .ttl = config_.ttl};
  return LeaseCall{.kind = Kind::kRead};
}

void LeaseCourse::OnAnswer(const LeaseAnswer& answer, absl::Time now) {
  const Sent call = *std::exchange(under_way_, std::nullopt);
  // If the deadline has passed, the answer no longer counts, even if it is OK.
  CheckDeadline(now);
  if (state_ == State::kLost) return;
  const bool is_gone = call.kind == LeaseCall::Kind::kRevoke && absl::IsNotFound(answer.status);
  if (!answer.status.ok() && !is_gone) return OnFailure(call, answer.status, now);
  last_error_ = absl::OkStatus();
  switch (call.kind) {
    case LeaseCall::Kind::kRead:
      return OnKeySeen(answer.key, now);
    case LeaseCall::Kind::kGrant:
      return OnGranted(call, answer, now);
    case LeaseCall::Kind::kClaim:
      return OnClaimed(answer.key, now);
    case LeaseCall::Kind::kKeepAlive:
      return OnRenewed(call, answer.ttl);
    case LeaseCall::Kind::kRevoke:
      abandoned_ = 0;
      if (state_ == State::kSeeking) next_call_ = now + config_.look_interval;
      return;
  }
}

void LeaseCourse::OnFailure(const Sent& call, const absl::Status& status, absl::Time now) {
  last_error_ = status;
  endpoint_ = (endpoint_ + 1) % config_.num_endpoints;
  renewed_.reset();
  if (state_ == State::kReleased) {
    if (--releases_left_ > 0) return;
    lease_.reset();  // the lease ends by itself
    abandoned_ = 0;
    return;
  }
  next_call_ = now + (state_ == State::kHeld ? config_.retry_pause : config_.look_interval);
  if (state_ == State::kHeld) return;
  // The failed call has not said which process holds the lease.
  holder_.clear();
  if (call.kind == LeaseCall::Kind::kRevoke) abandoned_ = 0;
  if (call.kind == LeaseCall::Kind::kClaim && absl::IsNotFound(status)) {
    lease_.reset();
    is_key_free_ = false;
  }
}

void LeaseCourse::OnGranted(const Sent& call, const LeaseAnswer& answer, absl::Time now) {
  if (answer.lease == 0 || answer.ttl <= absl::ZeroDuration()) {
    return OnFailure(
        call,
        absl::UnavailableError(absl::StrCat(
            "etcd granted lease ", answer.lease, " for ", absl::FormatDuration(answer.ttl),
            ", but the lease must be for ", absl::FormatDuration(config_.ttl))),
        now);
  }
  lease_ = Lease{answer.lease, answer.ttl, call.at};
}

void LeaseCourse::OnClaimed(const std::optional<LeaseKey>& key, absl::Time now) {
  if (state_ == State::kReleased) return;
  const bool is_ours = key.has_value() && key->lease == lease_->id;
  if (is_ours && now < deadline()) {
    state_ = State::kHeld;
    revision_ = key->revision;
    holder_.clear();
    return;
  }
  Abandon();
  if (key.has_value() && !is_ours) StandBy(*key, now);
  next_call_ = now;  // the call that gives the lease back is due now
}

void LeaseCourse::OnKeySeen(const std::optional<LeaseKey>& key, absl::Time now) {
  if (state_ == State::kReleased) return;
  if (state_ == State::kHeld) return OnOwnKeySeen(key);
  is_key_free_ = !key.has_value();
  if (key.has_value()) return StandBy(*key, now);
  holder_.clear();
}

void LeaseCourse::OnRenewed(const Sent& call, absl::Duration ttl) {
  if (state_ != State::kHeld) return;
  if (ttl <= absl::ZeroDuration()) {
    return Lose("has ended in etcd: it expired or was revoked");
  }
  renewed_ = Lease{lease_->id, ttl, call.at};
}

void LeaseCourse::OnOwnKeySeen(const std::optional<LeaseKey>& key) {
  if (!key.has_value()) return Lose("was deleted by another program");
  if (key->lease != lease_->id) return Lose(absl::StrCat("is held by ", Describe(*key)));
  lease_ = std::exchange(renewed_, std::nullopt);
}

void LeaseCourse::StandBy(const LeaseKey& key, absl::Time now) {
  is_key_free_ = false;
  next_call_ = now + config_.look_interval;
  holder_ = Describe(key);
  const absl::StatusOr<LeaderClaim> claim = ParseLeaderClaim(key.value);
  if (!claim.ok() || claim->role == config_.claim.role) return;
  refusal_ = absl::FailedPreconditionError(
      absl::StrCat(config_.name, " is held by ", holder_, ", but this process is ",
                   config_.claim.role, "; give each server its own key (--leader_lease)"));
}

void LeaseCourse::Abandon() {
  abandoned_ = lease_->id;
  lease_.reset();
  is_key_free_ = false;
}

void LeaseCourse::Release(absl::Time now) {
  CheckDeadline(now);
  if (state_ == State::kLost || state_ == State::kReleased) return;
  state_ = State::kReleased;
  releases_left_ = config_.num_endpoints + kExtraReleases;
  next_call_ = now;
}

bool LeaseCourse::is_over() const {
  if (state_ == State::kLost) return true;
  return state_ == State::kReleased && !under_way_.has_value() && !lease_.has_value() &&
         abandoned_ == 0;
}

void LeaseCourse::CheckDeadline(absl::Time now) {
  if (state_ == State::kHeld && now >= deadline()) Lose(Overdue(now));
}

std::string LeaseCourse::Overdue(absl::Time now) const {
  return absl::StrCat("was renewed ",
                      absl::FormatDuration(absl::Trunc(now - lease_->sent, absl::Milliseconds(1))),
                      " ago, but must be renewed every ", absl::FormatDuration(lease_->ttl), ": ",
                      last_error_.ok() ? "etcd has not answered since, or this process was stopped"
                                       : last_error_.message());
}

void LeaseCourse::Lose(std::string why) {
  state_ = State::kLost;
  lost_ =
      absl::AbortedError(absl::StrCat(config_.name, " ", why, "; another server may hold it now"));
}

absl::Status LeaseCourse::CheckHeld(absl::Time now) const {
  if (IsHeld(now)) return absl::OkStatus();
  if (state_ == State::kHeld) {
    return absl::AbortedError(absl::StrCat(config_.name, " ", Overdue(now)));
  }
  if (!lost_.ok()) return lost_;
  return absl::FailedPreconditionError(
      absl::StrCat("this process does not hold ", config_.name, " yet, or has released it"));
}

std::string LeaseCourse::notice() const {
  if (is_store_away()) {
    return absl::StrCat(state_ == State::kHeld ? "cannot renew " : "waits for ", config_.name, ": ",
                        last_error_.message());
  }
  if (state_ != State::kSeeking || holder_.empty()) return "";
  return absl::StrCat("waits as a standby: ", config_.name, " is held by ", holder_);
}

}  // namespace lodestar::lease
