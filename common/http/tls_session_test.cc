// SPDX-License-Identifier: Apache-2.0

#include "common/http/tls_session.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/http/tls_context_source.h"
#include "common/security/openssl_handles.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::http {
namespace {

const security::Identity kServer{security::Role::kServer, "s", "1"};
const security::Identity kAlice{security::Role::kOperator, "alice", "2"};

// The client's side of a TLS session, in memory.
class TlsPeer {
 public:
  // `files` is the certificate that the client shows. Null means none.
  explicit TlsPeer(const security::CredentialFiles* files, int max_version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_max_proto_version(context_.get(), max_version);
    if (files != nullptr) {
      EXPECT_EQ(SSL_CTX_use_certificate_file(context_.get(), files->certificate.c_str(),
                                             SSL_FILETYPE_PEM),
                1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_.get(), files->key.c_str(), SSL_FILETYPE_PEM),
                1);
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_.get());
  }

  // Finishes the handshake and sends `text`. Returns the result of session.Receive().
  absl::Status Say(const std::string& text, TlsSession& session, std::string& plain) {
    for (int turn = 0; turn < 4; ++turn) {
      SSL_do_handshake(ssl_.get());
      if (SSL_is_init_finished(ssl_.get()) == 1 && turn < 3) {
        SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size()));
        turn = 3;
      }
      char bytes[16384];
      const int num_bytes = BIO_read(SSL_get_wbio(ssl_.get()), bytes, sizeof(bytes));
      if (num_bytes > 0) {
        RETURN_IF_ERROR(session.Receive({bytes, static_cast<size_t>(num_bytes)}, plain));
      }
      Take(session);
    }
    return absl::OkStatus();
  }
  void Take(TlsSession& session) {
    const std::string bytes = session.TakeOutput();
    BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
  }
  std::string Read() {
    char bytes[64];
    const int num_bytes = SSL_read(ssl_.get(), bytes, sizeof(bytes));
    return num_bytes > 0 ? std::string(bytes, static_cast<size_t>(num_bytes)) : "";
  }
  bool is_closed() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

 private:
  const security::OwnedSslContext context_;
  security::OwnedSsl ssl_;
};

class TlsSessionTest : public ::testing::Test {
 protected:
  TlsSessionTest() : context_(TlsContext::Create(files_).value()), session_(*context_) {}

  const security::TestAuthority authority_;
  const security::CredentialFiles files_ = authority_.FilesFor(kServer);
  const std::shared_ptr<const TlsContext> context_;
  TlsSession session_;
  std::string plain_;
};

TEST_F(TlsSessionTest, CarriesBytesAndKnowsWhoShowsACertificate) {
  const security::CredentialFiles alice = authority_.FilesFor(kAlice);
  TlsPeer peer(&alice);
  ASSERT_OK(peer.Say("hello", session_, plain_));
  ASSERT_TRUE(session_.is_open());
  EXPECT_EQ(plain_, "hello");
  const absl::StatusOr<std::optional<security::Identity>> identity = session_.PeerIdentity();
  ASSERT_OK(identity);
  EXPECT_EQ(*identity, kAlice);
  session_.Send("world");
  session_.Close();
  peer.Take(session_);
  EXPECT_EQ(peer.Read(), "world");
  EXPECT_EQ(peer.Read(), "");
  EXPECT_TRUE(peer.is_closed());
}

TEST_F(TlsSessionTest, ACertificateIsNoCondition) {
  TlsPeer peer(nullptr);
  ASSERT_OK(peer.Say("hello", session_, plain_));
  EXPECT_EQ(plain_, "hello");
  const absl::StatusOr<std::optional<security::Identity>> identity = session_.PeerIdentity();
  ASSERT_OK(identity);
  EXPECT_EQ(*identity, std::nullopt);
}

TEST_F(TlsSessionTest, ACertificateOfAnotherAuthorityEndsTheHandshake) {
  const security::CredentialFiles foreign = security::TestAuthority().FilesFor(kAlice);
  TlsPeer peer(&foreign);
  EXPECT_THAT(peer.Say("hello", session_, plain_), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(plain_, "");
}

TEST_F(TlsSessionTest, OldTlsAndWhatIsNoneAreRefused) {
  TlsPeer old(nullptr, TLS1_2_VERSION);
  EXPECT_THAT(old.Say("hello", session_, plain_), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_NE(session_.TakeOutput(), "") << "the alert";
  TlsSession plain(*context_);
  EXPECT_THAT(plain.Receive("GET / HTTP/1.1\r\n\r\n", plain_),
              StatusIs(absl::StatusCode::kInvalidArgument));
  TlsSession noise(*context_);
  EXPECT_THAT(noise.Receive("xyzxyzxyzxyz", plain_), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(TlsSessionTest, ARenewedCertificateIsShownFromThenOn) {
  const auto source = TlsContextSource::Open(files_);
  ASSERT_OK(source);
  const std::shared_ptr<const TlsContext> first = (*source)->Current();
  (*source)->Refresh();
  EXPECT_EQ((*source)->Current(), first);
  authority_.Renew(files_, kServer);
  (*source)->Refresh();
  EXPECT_NE((*source)->Current(), first);
}

TEST_F(TlsSessionTest, WhatCouldNotBeReadIsReadAgain) {
  const auto source = TlsContextSource::Open(files_);
  ASSERT_OK(source);
  const std::shared_ptr<const TlsContext> first = (*source)->Current();
  authority_.Renew(files_, kServer);
  // Simulates a disk that fails once: the bytes change, but size and time of the file do not.
  const auto written = std::filesystem::last_write_time(files_.certificate);
  const auto begin_with = [&](char byte) {
    std::fstream file(files_.certificate, std::ios::in | std::ios::out | std::ios::binary);
    file.put(byte);
    file.close();
    std::filesystem::last_write_time(files_.certificate, written);
  };
  begin_with('x');
  (*source)->Refresh();
  EXPECT_EQ((*source)->Current(), first);
  begin_with('-');
  (*source)->Refresh();
  EXPECT_NE((*source)->Current(), first);
}

}  // namespace
}  // namespace lodestar::http
