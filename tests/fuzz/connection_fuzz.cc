// SPDX-License-Identifier: Apache-2.0

// Fuzzes connections of unknown clients: their first bytes, HTTP/2 that is refused, and enrolments
// before and inside TLS. Also fuzzes the messages of shared memory, which name memory of another
// process.

#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/security/certificates.h"
#include "common/security/openssl_handles.h"
#include "common/storage/shared_region.h"
#include "proto/enrollment.h"
#include "server/firewall/client_hello.h"
#include "server/firewall/first_bytes.h"
#include "server/firewall/http2_refusal.h"
#include "server/http2/http2_guard.h"
#include "server/rpc/shared_memory_stream.h"
#include "server/rpc/stream_watch.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

using Seeds = std::vector<std::string>;

void ReadFirstBytes(absl::string_view bytes) {
  firewall::FirstBytes before = firewall::FirstBytes::kIncomplete;
  for (size_t size = 0; size <= bytes.size() && size <= 2 * firewall::kMaxFirstBytes; ++size) {
    const firewall::FirstBytes now = firewall::ClassifyFirstBytes(bytes.substr(0, size));
    // A few bytes may already give an answer. Later bytes may change this answer only to kOther.
    LODESTAR_CHECK(before == firewall::FirstBytes::kIncomplete || now == before ||
                   now == firewall::FirstBytes::kOther)
        << size;
    LODESTAR_CHECK(size < firewall::kMaxFirstBytes || now != firewall::FirstBytes::kIncomplete)
        << size;
    before = now;
  }
  if (before != firewall::FirstBytes::kOther) Accept();
}

// Tests a first record that is always that of a handshake, whatever the input.
void ReadClientHello(absl::string_view bytes) {
  const std::string hello = absl::StrCat("\x16\x03", bytes);
  firewall::ClientHello before = firewall::ClientHello::kIncomplete;
  for (size_t size = 2; size <= hello.size(); ++size) {
    const firewall::ClientHello now =
        firewall::ClassifyClientHello(absl::string_view(hello).substr(0, size));
    // Once given, an answer stays the same, or becomes kMalformed because more than a ClientHello
    // has come.
    LODESTAR_CHECK(before == firewall::ClientHello::kIncomplete || now == before ||
                   now == firewall::ClientHello::kMalformed)
        << size;
    before = now;
  }
  if (before == firewall::ClientHello::kOffersTls13 || before == firewall::ClientHello::kOlder)
    Accept();
}

// Input: [size of the pieces | what a client sends]
void ReadHttp2(absl::string_view bytes) {
  constexpr size_t kMostPerByte = 64;
  const size_t piece_bytes = size_t{1} + TakeByte(bytes);
  const auto new_refusal = [] {
    return firewall::Http2Refusal(absl::UnavailableError("too many"),
                                  firewall::Http2Refusal::GoAwayCode::kEnhanceYourCalm);
  };
  firewall::Http2Refusal whole = new_refusal();
  const std::string answer = whole.OnBytes(bytes);
  firewall::Http2Refusal cut = new_refusal();
  std::string answer_to_pieces = bytes.empty() ? cut.OnBytes("") : "";
  for (absl::string_view left = bytes; !left.empty();) {
    answer_to_pieces += cut.OnBytes(left.substr(0, piece_bytes));
    left.remove_prefix(std::min(piece_bytes, left.size()));
  }
  LODESTAR_CHECK(answer == answer_to_pieces);
  LODESTAR_CHECK(whole.is_broken() == cut.is_broken() && whole.GoAway() == cut.GoAway());
  LODESTAR_CHECK(answer.size() <= kMostPerByte * (bytes.size() + 1)) << answer.size();
  if (!whole.is_broken()) Accept();
}

// Input: [size of the pieces | what a client sends]
void GuardHttp2(absl::string_view bytes) {
  const size_t piece_bytes = size_t{1} + TakeByte(bytes);
  const absl::Time now = absl::UnixEpoch();
  const bool is_allowed = http2::Http2Guard().Allows(bytes, now);
  http2::Http2Guard cut;
  bool are_pieces_allowed = true;
  for (absl::string_view left = bytes; !left.empty();) {
    are_pieces_allowed = cut.Allows(left.substr(0, piece_bytes), now);
    left.remove_prefix(std::min(piece_bytes, left.size()));
  }
  LODESTAR_CHECK(is_allowed == are_pieces_allowed);
  if (is_allowed) Accept();
}

const security::Credentials& OwnCredentials() {
  static const security::Credentials* const own = [] {
    const absl::Time now = absl::Now();
    const security::Validity validity = {now - absl::Hours(1), now + absl::Hours(1000)};
    security::Authority authority;
    authority.key = security::NewPrivateKey();
    authority.certificate = *security::MakeAuthority(authority.key, validity);
    auto* const made = new security::Credentials();
    made->key = security::NewPrivateKey();
    made->authority = authority.certificate;
    made->certificate =
        *security::IssueCertificate(authority, *security::MakeCertificateRequest(made->key),
                                    {security::Role::kServer, "shard-0", "01"}, validity);
    return made;
  }();
  return *own;
}

absl::Status Serve(int descriptor) {
  return wire::ServeEnrollment(
      descriptor, OwnCredentials(), absl::Seconds(100),
      [](const v1::EnrollRequest& request) -> absl::StatusOr<v1::EnrollReply> {
        Accept();
        if (request.token_id().empty()) {
          return absl::PermissionDeniedError("no token");
        }
        return v1::EnrollReply();
      });
}

// Serves a connection on which all bytes have already come and which has ended.
void ReadPlainEnrollment(absl::string_view bytes) {
  int ends[2];
  LODESTAR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const int room = 1 << 20;
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
  LODESTAR_CHECK(send(ends[0], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                 static_cast<ssize_t>(bytes.size()));
  shutdown(ends[0], SHUT_WR);
  Refuse(Serve(ends[1]));
  close(ends[0]);
  // With the preamble, the rest would be TLS, which fails here.
  if (bytes.substr(0, wire::kEnrollmentPreamble.size()) == wire::kEnrollmentPreamble) Accept();
}

// Connects with correct TLS, and sends these bytes inside it.
void SendInTls(int descriptor, absl::string_view bytes) {
  send(descriptor, wire::kEnrollmentPreamble.data(), wire::kEnrollmentPreamble.size(),
       MSG_NOSIGNAL);
  static SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  const security::OwnedSsl ssl(SSL_new(context));
  SSL_set_fd(ssl.get(), descriptor);
  LODESTAR_CHECK(SSL_connect(ssl.get()) == 1);
  if (!bytes.empty()) SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size()));
  SSL_shutdown(ssl.get());
  shutdown(descriptor, SHUT_WR);
  char reply[4096];
  while (SSL_read(ssl.get(), reply, sizeof(reply)) > 0) {
  }
  security::OpensslError();
}

void ReadEnrollmentFrames(absl::string_view bytes) {
  // Ignores SIGPIPE as common/process/stop_signals does: OpenSSL writes to sockets that the other
  // side may have closed.
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  LODESTAR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  std::thread client([&] {
    SendInTls(ends[0], bytes);
    close(ends[0]);
  });
  const absl::Status status = Serve(ends[1]);
  client.join();
  if (!status.ok()) Refuse(status);
}

using Request = v1::SharedMemoryRequest;
using Reply = v1::SharedMemoryReply;

// Plays gRPC's side of a call, in one thread.
class Call final : public grpc::ServerCallbackReaderWriter<Request, Reply> {
 public:
  explicit Call(grpc::ServerBidiReactor<Request, Reply>* reactor) : reactor_(reactor) {
    BindReactor(reactor);
  }

  bool is_over() const { return end_.has_value(); }
  const grpc::Status& end() const { return *end_; }
  uint64_t region() const { return region_; }

  // Gives the next request to the reactor. Null means that the client has no more requests.
  void OnRead(const Request* request) {
    Request* const wanted = std::exchange(wanted_, nullptr);
    if (wanted == nullptr) return;
    if (request != nullptr) *wanted = *request;
    reactor_->OnReadDone(request != nullptr);
    FinishWrites();
  }
  void FinishWrites() {
    while (std::exchange(is_writing_, false)) reactor_->OnWriteDone(true);
  }

  void Read(Request* request) override { wanted_ = request; }
  void Write(const Reply* reply, grpc::WriteOptions) override {
    LODESTAR_CHECK(!is_writing_ && !is_over());
    if (reply->region() != 0) region_ = reply->region();
    is_writing_ = true;
  }
  void Finish(grpc::Status status) override {
    LODESTAR_CHECK(!is_writing_ && !is_over());
    end_ = std::move(status);
  }
  void SendInitialMetadata() override {}
  void WriteAndFinish(const Reply*, grpc::WriteOptions, grpc::Status) override {
    LODESTAR_CHECK(false) << "nobody does that";
  }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  grpc::ServerBidiReactor<Request, Reply>* const reactor_;
  Request* wanted_ = nullptr;
  bool is_writing_ = false;
  uint64_t region_ = 0;
  std::optional<grpc::Status> end_;
};

const storage::SharedRegion& Region() {
  static const storage::SharedRegion* const region =
      new storage::SharedRegion(std::move(storage::SharedRegion::Create(64 << 10)).value());
  return *region;
}

// Input: [request, with its length | ...]. If the first request has no nonce, it gets the handle of
// a real region.
void ReadSharedMemory(absl::string_view bytes) {
  auto regions = std::make_shared<rpc::SharedMemoryRegions>(/*is_enabled=*/true);
  auto* const reactor = rpc::SharedMemoryStream::Start(
      regions, std::make_shared<rpc::StreamWatch>(absl::InfiniteDuration()),
      std::make_shared<rpc::WorkerProcesses>(),
      [](const messages::WorkerLife&) { return absl::OkStatus(); });
  Call call(reactor);
  bool is_first = true;
  while (!bytes.empty() && !call.is_over()) {
    Request request;
    const absl::string_view piece = TakePiece(bytes);
    if (!request.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) break;
    if (std::exchange(is_first, false) && request.nonce().empty()) {
      request.set_process_id(Region().handle().process_id);
      request.set_file_descriptor(Region().handle().descriptor);
      request.set_nonce(Region().handle().nonce);
      request.set_bytes(Region().handle().bytes);
    }
    const WorkerId worker(request.worker_id());
    call.OnRead(&request);
    const auto stream = regions->Find(call.region(), worker);
    if (!stream.ok()) continue;
    Accept();
    rpc::SharedMemoryStream::Block block;
    const auto answer = (*stream)->TakeBlock(block, [] {});
    if (answer != rpc::SharedMemoryStream::Answer::kTaken) continue;
    LODESTAR_CHECK(static_cast<int64_t>(block.memory.size()) == (*stream)->block_bytes());
    block.memory.front() = 'x';
    block.memory.back() = 'x';
    (*stream)->MarkRead(block.offset);
    call.FinishWrites();
  }
  call.OnRead(nullptr);
  LODESTAR_CHECK(call.is_over() && regions->size() == 0);
  LODESTAR_CHECK(call.end().ok() || !call.end().error_message().empty());
  reactor->OnDone();
}

Seeds FirstBytesSeeds() {
  return {"\x16\x03\x01\x02", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "LODESTAR-ENROLL-1\n",
          "GET / HTTP/1.1\r\n", "OPTIONS *"};
}

// Returns the first bytes of OpenSSL without the two bytes that ReadClientHello() puts before the
// input.
std::string HelloOfOpenssl(int max_version) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, max_version);
  SSL* const ssl = SSL_new(context);
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), sent);
  SSL_connect(ssl);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(sent, &bytes);
  std::string hello(bytes + 2, static_cast<size_t>(size) - 2);
  SSL_free(ssl);
  SSL_CTX_free(context);
  security::OpensslError();
  return hello;
}

Seeds ClientHelloSeeds() {
  return {HelloOfOpenssl(TLS1_3_VERSION), HelloOfOpenssl(TLS1_2_VERSION)};
}

Seeds Http2Seeds() {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string call("\0\0\0\1\5\0\0\0\1", 9);
  const std::string ping(
      "\0\0\10\6\0\0\0\0\0"
      "01234567",
      17);
  return {absl::StrCat("\x03", preface, settings, ping, call)};
}

Seeds PlainEnrollmentSeeds() {
  // The second part is the first record of a handshake.
  return {absl::StrCat(wire::kEnrollmentPreamble,
                       std::string("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9)),
          std::string(wire::kEnrollmentPreamble)};
}

Seeds EnrollmentFrameSeeds() {
  v1::EnrollRequest request;
  request.set_wire_version(3);
  request.set_token_id("0a");
  request.set_secret("0123456789abcdef");
  request.set_certificate_request("-----BEGIN CERTIFICATE REQUEST-----\n");
  request.set_name("box");
  request.add_roles("worker");
  const std::string body = request.SerializeAsString();
  return {absl::StrCat(std::string(3, '\0'), std::string(1, static_cast<char>(body.size())), body)};
}

Seeds SharedMemorySeeds() {
  Request open;
  open.set_worker_id(3);
  open.set_incarnation(4);
  open.set_block_bytes(4096);
  open.add_writable(0);
  open.add_writable(4096);
  Request more;
  more.add_writable(8192);
  return {absl::StrCat(Piece(open.SerializeAsString()), Piece(more.SerializeAsString()),
                       Piece(more.SerializeAsString()))};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {
      {"first_bytes", ReadFirstBytes, FirstBytesSeeds},
      {"http2", ReadHttp2, Http2Seeds},
      {"plain_enrollment", ReadPlainEnrollment, PlainEnrollmentSeeds},
      {"enrollment_frames", ReadEnrollmentFrames, EnrollmentFrameSeeds},
      {"shared_memory", ReadSharedMemory, SharedMemorySeeds},
      {"client_hello", ReadClientHello, ClientHelloSeeds},
      {"http2_guard", GuardHttp2, Http2Seeds},
  };
  return kCases;
}

}  // namespace lodestar::fuzz
