// SPDX-License-Identifier: Apache-2.0

// Gets a machine's first certificate. Has both sides of the exchange described in
// proto/authority_service.proto. A machine checks the authority before it sends the secret. An
// enrolment does not use HTTP/2, so machines without a certificate never reach gRPC's HTTP/2 code.
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

// Checks that a server's certificate is valid at `now`. Errors: Unavailable with the times of both
// sides (a clock is wrong, or the server has not renewed its certificate; the caller should try
// again); InvalidArgument (not a certificate).
absl::Status CheckServerTimes(const std::string& certificate, absl::Time now);

// Makes a key and gets a certificate for `name` and one of `roles`, from the first server of the
// join string that answers. For an empty `name` see EnrollRequest. Blocks. Errors:
//   Unavailable, DeadlineExceeded  no server answers.
//   PermissionDenied               the token is refused. Or a server with another authority
//                                  answers; the secret was not sent to it.
//   others                         those of the server.
absl::StatusOr<security::Credentials> Enroll(const security::JoinString& join,
                                             absl::Span<const security::Role> roles,
                                             const std::string& name, absl::Duration timeout);

using EnrollmentAnswer =
    std::function<absl::StatusOr<v1::EnrollReply>(const v1::EnrollRequest& request)>;

// Serves one enrolment on a connection, including the preamble. `own` are the server's credentials.
// `answer` makes the reply. Blocks for at most `timeout` plus the time that `answer` takes. Closes
// the descriptor. Errors: the reason why the enrolment failed.
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
