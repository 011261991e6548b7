// SPDX-License-Identifier: Apache-2.0

// Gets a machine's first certificate: both sides of the exchange described in
// proto/authority_service.proto. A machine checks the authority before it sends the secret. During
// an enrolment no HTTP/2 is spoken, so strangers cannot reach it.
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

// First bytes of an enrolment's connection.
inline constexpr absl::string_view kEnrollmentPreamble = "LODESTAR-ENROLL-1\n";

// Checks that a server's certificate is valid at `now`. If it is not valid, a clock is wrong, or
// the server is about to renew its certificate. So the caller should try again. Errors: Unavailable
// with the times of both sides; InvalidArgument (not a certificate).
absl::Status CheckServerTimes(const std::string& certificate, absl::Time now);

// Makes a key and gets a certificate for one of `roles` and for `name`, from the first server of
// the join string that answers. For an empty `name` see EnrollRequest. Blocks. Errors: Unavailable,
// DeadlineExceeded (no server answers); PermissionDenied (another authority answers, and the secret
// was not sent; or the token is refused); those of the server.
absl::StatusOr<security::Credentials> Enroll(const security::JoinString& join,
                                             absl::Span<const security::Role> roles,
                                             const std::string& name, absl::Duration timeout);

using EnrollmentAnswer =
    std::function<absl::StatusOr<v1::EnrollReply>(const v1::EnrollRequest& request)>;

// Serves one enrolment on a connection, including the preamble. `own` are the server's credentials.
// Blocks for at most `timeout` plus the time of `answer`. Closes the descriptor. Errors: the reason
// why the enrolment failed.
absl::Status ServeEnrollment(int descriptor, const security::Credentials& own,
                             absl::Duration timeout, const EnrollmentAnswer& answer);

// The answer of the program that listens at an address.
struct Greeting {
  bool is_tls = false;  // false: plain text
  // The server's certificate as PEM, followed by the certificates between it and its authority.
  // Empty means that the server has shown none, because it is starting or full.
  std::string certificate;
};
// Finds out whether the server at the address speaks TLS or plain text, without making a call.
// Blocks. Errors: Unavailable, DeadlineExceeded (no program answers, or the answer does not show
// which of the two it is).
absl::StatusOr<Greeting> Greet(const std::string& address, absl::Duration timeout);

}  // namespace lodestar::wire
