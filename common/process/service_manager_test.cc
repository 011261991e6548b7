// SPDX-License-Identifier: Apache-2.0

#include "common/process/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "gtest/gtest.h"

namespace lodestar::process {
namespace {

// A socket as systemd creates it, bound to the name that systemd would put into $NOTIFY_SOCKET.
class Manager {
 public:
  explicit Manager(std::string name) : name_(std::move(name)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name_.data(), name_.size());
    if (name_[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size())),
              0);
  }
  ~Manager() {
    close(descriptor_);
    if (name_[0] != '@') unlink(name_.c_str());
  }

  std::string Receive() const {
    char message[256];
    const ssize_t size = recv(descriptor_, message, sizeof(message), MSG_DONTWAIT);
    return size < 0 ? "nothing" : std::string(message, static_cast<size_t>(size));
  }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const int descriptor_ = socket(AF_UNIX, SOCK_DGRAM, 0);
};

TEST(ServiceManagerTest, TellsWhoHasStartedIt) {
  // The path is short, because socket paths have a small maximum length.
  const std::string path = "/tmp/lodestar-notify-" + std::to_string(getpid());
  const std::string abstract = "@lodestar-test-" + std::to_string(getpid());
  for (const std::string& name : {path, abstract}) {
    const Manager manager(name);
    const ServiceManager told(name);
    told.TellReady("serving");
    EXPECT_EQ(manager.Receive(), "READY=1\nWATCHDOG=1\nSTATUS=serving") << name;
    told.TellStopping();
    EXPECT_EQ(manager.Receive(), "STOPPING=1\nWATCHDOG=1") << name;
  }
}

TEST(ServiceManagerTest, WhatOthersHaveWrittenIsOneLineAndNoWordOfItsOwn) {
  const Manager manager("@lodestar-test-line-" + std::to_string(getpid()));
  const ServiceManager told(manager.name());
  told.TellReady("waits for w1\nSTOPPING=1");
  EXPECT_EQ(manager.Receive(), "READY=1\nWATCHDOG=1\nSTATUS=waits for w1\\nSTOPPING=1");
}

TEST(ServiceManagerTest, WithoutOneOrWithOneThatIsGoneNothingHappens) {
  ServiceManager("").TellReady("serving");
  ServiceManager("/nowhere/notify").TellReady("serving");
  ServiceManager(std::string(200, 'x')).TellStopping();
}

TEST(ServiceManagerTest, OneThatDoesNotReadIsNotWaitedFor) {
  const Manager manager("@lodestar-test-full-" + std::to_string(getpid()));
  const ServiceManager told(manager.name());
  for (int i = 0; i < 100'000; ++i) told.TellReady("serving");
  EXPECT_EQ(manager.Receive(), "READY=1\nWATCHDOG=1\nSTATUS=serving");
}

}  // namespace
}  // namespace lodestar::process
