#include "server/rpc/lease_store_factory.h"

#include "server/rpc/etcd_lease_store.h"

namespace lodestar {

std::unique_ptr<LeaseStore> MakeLeaseStore(const LeaseAddress& address) {
  switch (address.scheme) {
    case LeaseAddress::Scheme::kEtcd:
      return std::make_unique<EtcdLeaseStore>(address.endpoints, address.key);
  }
  return nullptr;
}

}  // namespace lodestar
