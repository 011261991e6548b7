// SPDX-License-Identifier: Apache-2.0

#include "proto/enrollment.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/net/host_port.h"
#include "common/process/version.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "common/runtime/worker_name.h"
#include "common/security/openssl_handles.h"
#include "proto/status_mapping.h"

namespace lodestar::wire {
namespace {

constexpr size_t kMaxMessageBytes = 64 << 10;
constexpr size_t kLengthBytes = 4;
constexpr int kMaxHostNameBytes = 32;

absl::Status SocketError(absl::string_view action) {
  return absl::UnavailableError(absl::StrCat(action, ": ", strerror(errno)));
}

// A non-blocking socket, with TLS after BeginTls(). All operations have the same deadline.
class Connection {
 public:
  // `is_accepted` is false if the peer's operating system has not accepted the connection yet.
  Connection(int descriptor, absl::Time deadline, bool is_accepted = true)
      : descriptor_(descriptor), deadline_(deadline), is_accepted_(is_accepted) {
    fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
  }
  Connection(Connection&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        deadline_(other.deadline_),
        is_accepted_(other.is_accepted_),
        ssl_(std::move(other.ssl_)) {}
  ~Connection() {
    ssl_.reset();
    if (descriptor_ >= 0) close(descriptor_);
  }

  int descriptor() const { return descriptor_; }
  // Returns the error of TLS as an SSL_R_ code of OpenSSL. 0 means that TLS has not failed, or that
  // only the connection has ended.
  int tls_failure() const { return tls_failure_; }
  SSL* ssl() const { return ssl_.get(); }
  void SetAccepted() { is_accepted_ = true; }

  absl::Status Await(short events) const {
    while (true) {
      const absl::Duration left = deadline_ - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            is_accepted_
                ? "the server accepted the connection and does not answer: its process may be "
                  "stopped or hang"
                : "the server does not accept the connection");
      }
      pollfd entry{descriptor_, events, 0};
      const int64_t wait_ms = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
      const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(wait_ms, 1 << 30)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return SocketError("cannot wait for the server");
    }
  }

  absl::Status SendPlain(absl::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(sent);
      } else if (errno == EAGAIN) {
        RETURN_IF_ERROR(Await(POLLOUT));
      } else if (errno != EINTR) {
        return SocketError("cannot send");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReceivePlain(absl::string_view wanted) const {
    std::string got(wanted.size(), '\0');
    size_t done = 0;
    while (done < got.size()) {
      const ssize_t received = recv(descriptor_, got.data() + done, got.size() - done, 0);
      if (received > 0) {
        done += received;
      } else if (received == 0) {
        return absl::UnavailableError("the server closed the connection");
      } else if (errno == EAGAIN) {
        RETURN_IF_ERROR(Await(POLLIN));
      } else if (errno != EINTR) {
        return SocketError("cannot receive");
      }
    }
    if (got != wanted) {
      return absl::InvalidArgumentError(
          "the server does not speak the enrolment of this release; use the same release on both "
          "sides");
    }
    return absl::OkStatus();
  }

  absl::Status BeginTls(SSL_CTX* context, bool is_server) {
    ssl_.reset(SSL_new(context));
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), descriptor_) != 1) {
      return absl::InternalError(security::OpensslError());
    }
    return Repeat([&] { return is_server ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get()); });
  }

  absl::Status Send(const google::protobuf::MessageLite& message) {
    const std::string body = message.SerializeAsString();
    std::string frame;
    for (int shift = 24; shift >= 0; shift -= 8) {
      frame.push_back(static_cast<char>(body.size() >> shift));
    }
    frame += body;
    return Repeat(
        [&] { return SSL_write(ssl_.get(), frame.data(), static_cast<int>(frame.size())); });
  }

  absl::Status Receive(google::protobuf::MessageLite& message) {
    std::string length(kLengthBytes, '\0');
    RETURN_IF_ERROR(ReceiveAll(length));
    size_t size = 0;
    for (const char byte : length) size = size << 8 | static_cast<unsigned char>(byte);
    if (size > kMaxMessageBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the server announces a message of ", size,
                                                     " bytes; at most ", kMaxMessageBytes,
                                                     " are allowed"));
    }
    std::string body(size, '\0');
    RETURN_IF_ERROR(ReceiveAll(body));
    if (message.ParseFromString(body)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the server's message cannot be read; use the same release on both sides");
  }

  // Ends TLS properly, so that the other side gets all bytes before the connection closes.
  void Finish() {
    Repeat([&] { return SSL_shutdown(ssl_.get()) >= 0 ? 1 : -1; }).IgnoreError();
    shutdown(descriptor_, SHUT_WR);
  }

 private:
  template <typename Step>
  absl::Status Repeat(Step step) {
    while (true) {
      const int result = step();
      if (result > 0) return absl::OkStatus();
      switch (SSL_get_error(ssl_.get(), result)) {
        case SSL_ERROR_WANT_READ:
          RETURN_IF_ERROR(Await(POLLIN));
          break;
        case SSL_ERROR_WANT_WRITE:
          RETURN_IF_ERROR(Await(POLLOUT));
          break;
        case SSL_ERROR_ZERO_RETURN:
        case SSL_ERROR_SYSCALL:
          security::OpensslError();
          return absl::UnavailableError("the connection was closed");
        default:
          tls_failure_ = ERR_GET_REASON(ERR_peek_error());
          return absl::UnavailableError(absl::StrCat("TLS fails: ", security::OpensslError()));
      }
    }
  }

  absl::Status ReceiveAll(std::string& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      int got = 0;
      RETURN_IF_ERROR(Repeat([&] {
        return got =
                   SSL_read(ssl_.get(), bytes.data() + done, static_cast<int>(bytes.size() - done));
      }));
      done += got;
    }
    return absl::OkStatus();
  }

  int descriptor_;
  absl::Time deadline_;
  bool is_accepted_;
  security::OwnedSsl ssl_;
  int tls_failure_ = 0;
};

absl::StatusOr<Connection> Dial(const std::string& address, absl::Time deadline) {
  ASSIGN_OR_RETURN(const net::HostPort place,
                   net::ParseHostPort("join", address, /*lowest_port=*/1));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(place.host.c_str(), absl::StrCat(place.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot find ", place.host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    const int descriptor =
        socket(candidate->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return SocketError("cannot open a socket");
    Connection connection(descriptor, deadline, /*is_accepted=*/false);
    const int no_delay = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
    if (connect(descriptor, candidate->ai_addr, candidate->ai_addrlen) != 0) {
      if (errno == EINPROGRESS) last = connection.Await(POLLOUT);
      int failure = errno == EINPROGRESS ? 0 : errno;
      socklen_t size = sizeof(failure);
      if (failure == 0) getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &size);
      if (failure != 0) {
        errno = failure;
        last = SocketError("cannot connect");
      }
      if (failure != 0 || !last.ok()) continue;
    }
    connection.SetAccepted();
    return connection;
  }
  return last;
}

security::OwnedSslContext NewContext(const SSL_METHOD* method) {
  security::OwnedSslContext context(SSL_CTX_new(method));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

// Checks that the peer is a server whose certificate was issued by the authority with this hash.
absl::Status CheckPeer(SSL* ssl, const std::string& authority_sha256, absl::Time now) {
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl);
  X509* authority = nullptr;
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    X509* const certificate = sk_X509_value(chain, i);
    if (security::FingerprintOf(certificate) == authority_sha256) authority = certificate;
  }
  if (authority == nullptr) {
    return absl::PermissionDeniedError(
        "the server that answers there has another authority than the join string says. Either it "
        "belongs to another cluster, or a machine in between intercepts the connection; the secret "
        "was not sent. Check the address, and ask for a new join string (psctl token create)");
  }
  X509* const server = sk_X509_value(chain, 0);
  RETURN_IF_ERROR(CheckServerTimes(security::PemOf(server), now));
  const absl::Status issued =
      security::CheckIssued(server, authority, X509_PURPOSE_SSL_SERVER, now);
  if (!issued.ok()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the program that answers there is no server of the cluster that the join string names (",
        issued.message(), "); the secret was not sent"));
  }
  ASSIGN_OR_RETURN(const security::CertificateFacts facts,
                   security::FactsOf(security::PemOf(server)));
  if (facts.identity.role == security::Role::kServer) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the program that answers there has the certificate of ", security::TextOf(facts.identity),
      ", which is no server; the secret was not sent"));
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "machine";
  // Cuts the host name at its first '.'. In the name of a worker, a '.' separates the host and the
  // process id.
  const absl::string_view host = name.data();
  const std::string legal = NearestName(host.substr(0, host.find('.')), kMaxHostNameBytes);
  return legal.empty() ? "machine" : legal;
}

absl::Status RefusalOf(const v1::EnrollReply& reply) {
  grpc::Status status(static_cast<grpc::StatusCode>(reply.code()), reply.error());
  return FromGrpcStatus(status);
}

absl::StatusOr<security::Credentials> EnrollAt(const std::string& address,
                                               const security::JoinString& join,
                                               absl::Span<const security::Role> roles,
                                               const std::string& name, absl::Time deadline) {
  ASSIGN_OR_RETURN(Connection connection, Dial(address, deadline));
  RETURN_IF_ERROR(connection.SendPlain(kEnrollmentPreamble));
  const security::OwnedSslContext context = NewContext(TLS_client_method());
  // OpenSSL's own check is off. CheckPeer() checks the chain below, against a hash and not against
  // the machine's trusted authorities.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  RETURN_IF_ERROR(connection.BeginTls(context.get(), /*is_server=*/false));
  RETURN_IF_ERROR(CheckPeer(connection.ssl(), join.authority_sha256, absl::Now()));
  security::Credentials credentials;
  credentials.key = security::NewPrivateKey();
  v1::EnrollRequest request;
  request.set_wire_version(process::kWireVersion);
  request.set_token_id(join.token_id);
  request.set_secret(join.secret);
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(),
                   security::MakeCertificateRequest(credentials.key));
  request.set_name(name);
  request.set_fallback_name(HostName());
  request.set_begins_early(true);
  for (const security::Role role : roles) request.add_roles(std::string(security::RoleName(role)));
  RETURN_IF_ERROR(connection.Send(request));
  v1::EnrollReply reply;
  RETURN_IF_ERROR(connection.Receive(reply));
  if (reply.code() != 0) return RefusalOf(reply);
  credentials.certificate = reply.certificate();
  credentials.authority = reply.authority();
  ASSIGN_OR_RETURN(const std::string fingerprint, security::FingerprintOf(credentials.authority));
  if (fingerprint != join.authority_sha256) {
    return absl::PermissionDeniedError(
        "the server sent another authority than the one that it showed first, so its certificate "
        "is not used");
  }
  RETURN_IF_ERROR(security::CheckKeyFits(credentials.certificate, credentials.key));
  return credentials;
}

// Stores in `shown` the server's certificate and the further certificates that it has sent. Then
// suspends the handshake.
int KeepAndLeave(X509_STORE_CTX* store, void* shown) {
  std::string& chain = *static_cast<std::string*>(shown);
  X509* const certificate = X509_STORE_CTX_get0_cert(store);
  chain = security::PemOf(certificate);
  const STACK_OF(X509)* const others = X509_STORE_CTX_get0_untrusted(store);
  for (int i = 0; i < sk_X509_num(others); ++i) {
    X509* const other = sk_X509_value(others, i);
    if (X509_cmp(other, certificate) != 0) absl::StrAppend(&chain, security::PemOf(other));
  }
  const int index = SSL_get_ex_data_X509_STORE_CTX_idx();
  SSL_set_retry_verify(static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, index)));
  return 1;  // without this result the handshake would not be suspended
}

}  // namespace

absl::Status CheckServerTimes(const std::string& certificate, absl::Time now) {
  ASSIGN_OR_RETURN(const security::Validity validity, security::ValidityOf(certificate));
  if (validity.from <= now && now < validity.until) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the server's certificate holds from ", UtcText(validity.from), " until ",
      UtcText(validity.until), ", and it is ", UtcText(now), " by the clock of this machine: ",
      now < validity.from
          ? "set the clock of the machine where it is wrong"
          : "if that clock is right, the server could not renew its certificate, for example "
            "because its disk is full: look at the log of the server. If the clock is wrong, set "
            "it"));
}

absl::StatusOr<security::Credentials> Enroll(const security::JoinString& join,
                                             absl::Span<const security::Role> roles,
                                             const std::string& name, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status last;
  for (const absl::string_view address : absl::StrSplit(join.servers, ',')) {
    absl::StatusOr<security::Credentials> credentials =
        EnrollAt(std::string(address), join, roles, name, deadline);
    if (credentials.ok()) return credentials;
    last = absl::Status(credentials.status().code(), absl::StrCat("cannot enrol at ", address, ": ",
                                                                  credentials.status().message()));
    if (!absl::IsUnavailable(last) && !absl::IsFailedPrecondition(last)) return last;
  }
  return last;
}

absl::StatusOr<Greeting> Greet(const std::string& address, absl::Duration timeout) {
  ASSIGN_OR_RETURN(Connection connection, Dial(address, absl::Now() + timeout));
  const security::OwnedSslContext context = NewContext(TLS_client_method());
  Greeting greeting;
  // The handshake is suspended and not completed. If it were completed, the server would report
  // that it failed, because this program shows no certificate.
  SSL_CTX_set_cert_verify_callback(context.get(), &KeepAndLeave, &greeting.certificate);
  const absl::Status greeted = connection.BeginTls(context.get(), /*is_server=*/false);
  if (!greeting.certificate.empty()) {
    greeting.is_tls = true;
    return greeting;
  }
  switch (connection.tls_failure()) {
    case SSL_R_WRONG_VERSION_NUMBER:          // the answer is not TLS, but for example HTTP/2
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:  // a ps_server with --insecure
      return greeting;
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:  // a ps_server that is starting or full
      greeting.is_tls = true;
      return greeting;
    default:
      // After other errors, such as a closed connection, it is not known whether the server speaks
      // TLS.
      RETURN_IF_ERROR(greeted);
  }
  greeting.is_tls = true;
  return greeting;
}

absl::Status ServeEnrollment(int descriptor, const security::Credentials& own,
                             absl::Duration timeout, const EnrollmentAnswer& answer) {
  Connection connection(descriptor, absl::Now() + timeout);
  RETURN_IF_ERROR(connection.ReceivePlain(kEnrollmentPreamble));
  const security::OwnedSslContext context = NewContext(TLS_server_method());
  ASSIGN_OR_RETURN(const security::OwnedCertificate certificate,
                   security::CertificateFromPem("certificate", own.certificate));
  ASSIGN_OR_RETURN(security::OwnedCertificate authority,
                   security::CertificateFromPem("authority", own.authority));
  ASSIGN_OR_RETURN(const security::OwnedKey key, security::KeyFromPem(own.key));
  if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1 ||
      SSL_CTX_add_extra_chain_cert(context.get(), authority.get()) != 1) {
    return absl::InternalError(security::OpensslError());
  }
  static_cast<void>(authority.release());  // the context owns it now
  RETURN_IF_ERROR(connection.BeginTls(context.get(), /*is_server=*/true));
  v1::EnrollRequest request;
  RETURN_IF_ERROR(connection.Receive(request));
  absl::StatusOr<v1::EnrollReply> reply = answer(request);
  const absl::Status refusal = reply.status();
  if (!refusal.ok()) {
    reply.emplace();
    reply->set_code(static_cast<uint32_t>(refusal.code()));
    reply->set_error(std::string(refusal.message()));
  }
  RETURN_IF_ERROR(connection.Send(*reply));
  connection.Finish();
  return refusal;
}

}  // namespace lodestar::wire
