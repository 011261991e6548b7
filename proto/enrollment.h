// How a machine gets its first certificate: both sides of the exchange that
// proto/authority_service.proto describes. A machine that joins knows the authority before it says
// the secret. Strangers reach no HTTP/2.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/security/credentials.h"
#include "common/security/join_string.h"
#include "proto/authority_service.pb.h"

namespace lodestar::wire {

// What a connection that is to be an enrolment begins with.
inline constexpr absl::string_view kEnrollmentPreamble = "LODESTAR-ENROLL-1\n";

// Returns OK if the certificate of a server holds at `now`. If it does not, a clock is wrong, or
// the server is about to renew it: no reason to give up. Errors: Unavailable with the times of both
// sides; InvalidArgument for what is no certificate.
absl::Status CheckServerTimes(const std::string& certificate, absl::Time now);

// Makes a key, and has it certified for one of `roles` and under `name` by the first server of the
// join string that answers. An empty `name` is explained at EnrollRequest. Blocks. Errors:
// Unavailable, DeadlineExceeded (no server answers); PermissionDenied (another authority answers:
// nothing was said to it; or the token is refused); those of the server.
absl::StatusOr<Credentials> Enroll(const JoinString& join, absl::Span<const Role> roles,
                                   const std::string& name, absl::Duration timeout);

using EnrollmentAnswer =
    std::function<absl::StatusOr<v1::EnrollReply>(const v1::EnrollRequest& request)>;

// Serves one enrolment on a connection, from the preamble to its end. `own` are a server's
// credentials. Blocks for at most `timeout`, and as long as `answer` does; closes the descriptor.
// Errors: why there was no enrolment.
absl::Status ServeEnrollment(int descriptor, const Credentials& own, absl::Duration timeout,
                             const EnrollmentAnswer& answer);

// How the program that listens at HOST:PORT answers.
struct Greeting {
  bool is_tls = false;  // else plain text
  // The certificate of the server as PEM, with those between it and an authority. It is empty if
  // the server has shown none, as a server does that starts or is full.
  std::string certificate;
};
// Says nothing but a greeting. Blocks. Errors: Unavailable, DeadlineExceeded if no program answers,
// or not in a way that tells what is spoken there.
absl::StatusOr<Greeting> Greet(const std::string& address, absl::Duration timeout);

}  // namespace lodestar::wire
