// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/lease_store_factory.h"

#include "server/rpc/etcd_lease_store.h"

namespace lodestar::rpc {

std::unique_ptr<lease::LeaseStore> MakeLeaseStore(const lease::LeaseAddress& address) {
  switch (address.scheme) {
    case lease::LeaseAddress::Scheme::kEtcd:
      return std::make_unique<EtcdLeaseStore>(address.endpoints, address.key);
  }
  return nullptr;
}

}  // namespace lodestar::rpc
