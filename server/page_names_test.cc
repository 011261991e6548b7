// SPDX-License-Identifier: Apache-2.0

#include "server/page_names.h"

#include <gtest/gtest.h>

#include "gmock/gmock.h"

namespace lodestar::server {
namespace {

using ::testing::ElementsAre;

TEST(PageNamesTest, AreThoseThatBrowsersMayHaveEachOnce) {
  NetworkConfig network;
  network.http = net::ListenAddress{{"0.0.0.0", 8080}};
  network.http_names = {"job.example.org", "box"};
  network.advertise = "server-0.servers:50051";
  EXPECT_THAT(PageNames(network, "box"),
              ElementsAre("job.example.org", "box", "server-0.servers", "lodestar"));
}

TEST(PageNamesTest, WhatNoCertificateCanHaveIsLeftOut) {
  NetworkConfig network;
  network.http = net::ListenAddress{{"10.0.0.1", 8080}};
  EXPECT_THAT(PageNames(network, "my_box"), ElementsAre("10.0.0.1", "lodestar"));
}

TEST(PageNamesTest, TheCertificateIsAlsoForThisMachineAlone) {
  NetworkConfig network;
  network.http = net::ListenAddress{{"10.0.0.1", 8080}};
  network.http_names = {"localhost"};
  EXPECT_THAT(CertificateHosts(network, "box"),
              ElementsAre("localhost", "10.0.0.1", "box", "lodestar", "127.0.0.1", "::1"));
}

}  // namespace
}  // namespace lodestar::server
