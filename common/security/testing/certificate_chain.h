// SPDX-License-Identifier: Apache-2.0

// A server's certificate that an authority has issued through an intermediate certificate. All are
// valid for a century.
#pragma once

namespace lodestar::security {

// The root certificate, signed by itself.
inline constexpr char kRootCertificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBfzCCASWgAwIBAgIUK7Sv0AN7Wt8RW29RuYE4mDNw9nIwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJdGVzdCByb290MCAXDTI2MTEyOTEzMzg1MFoYDzIxMjYxMTA1\n"
    "MTMzODUwWjAUMRIwEAYDVQQDDAl0ZXN0IHJvb3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAAQSXGQ1vwNb3vwZv9ZBqMEEZdpeBVPK4Hay+EctEOZAhc72NhXw3+cr\n"
    "cWPLYqv3HYZNxk1tSRbE50WVnh05qb9uo1MwUTAdBgNVHQ4EFgQUuhtq60+DSHcQ\n"
    "2wweNzwL3wXJxecwHwYDVR0jBBgwFoAUuhtq60+DSHcQ2wweNzwL3wXJxecwDwYD\n"
    "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAqbxuHrNCQi1bvvoNf+pd\n"
    "EPB7RCbBwezDtIipinwQ2Z4CIFwFDELnFD2ZiOV2EZOT2EDRkeJc/G0cYbd5LcoQ\n"
    "yr5t\n"
    "-----END CERTIFICATE-----\n";
// The intermediate certificate, signed by the root.
inline constexpr char kIntermediateCertificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBkzCCATqgAwIBAgIUWRz8kF9ZdTBafRgZrsmEMznA1vswCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJdGVzdCByb290MCAXDTI2MTEyOTEzMzg1MFoYDzIxMjYxMTA1\n"
    "MTMzODUwWjAcMRowGAYDVQQDDBF0ZXN0IGludGVybWVkaWF0ZTBZMBMGByqGSM49\n"
    "AgEGCCqGSM49AwEHA0IABGQiaJg+dgq66A3JghLrs+x/ru4ExvLiJCCeL5RoPfQx\n"
    "nIZ3enJ0T7RRo1In404+/NC5PoHc64q4ElG5jR7aWxujYDBeMA8GA1UdEwEB/wQF\n"
    "MAMBAf8wCwYDVR0PBAQDAgEGMB0GA1UdDgQWBBQvILlByPVyPj5RYLx63+uPoeRk\n"
    "LDAfBgNVHSMEGDAWgBS6G2rrT4NIdxDbDB43PAvfBcnF5zAKBggqhkjOPQQDAgNH\n"
    "ADBEAiB/vBvoeNf1b9JMr6PKBI4m3P/glUV6AuVG/aOGf54OpAIgDR4U7C1cLDGE\n"
    "ojYH/6roodBoe/erZrFEV0cDxx0pU1Y=\n"
    "-----END CERTIFICATE-----\n";
// The certificate of server s1, signed by the intermediate certificate.
inline constexpr char kLeafCertificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBzzCCAXWgAwIBAgIUfWp7mtD5oMLBgxp+MBSiUTzhHMkwCgYIKoZIzj0EAwIw\n"
    "HDEaMBgGA1UEAwwRdGVzdCBpbnRlcm1lZGlhdGUwIBcNMjYxMTI5MTMzODUwWhgP\n"
    "MjEyNjExMDUxMzM4NTBaMBYxFDASBgNVBAMMC3Rlc3Qgc2VydmVyMFkwEwYHKoZI\n"
    "zj0CAQYIKoZIzj0DAQcDQgAEwiUo4gUSk3raHBY8k/SJDZI3a76OPYS2kpZtSpFi\n"
    "im/VTOEBUyAnZEu8bhdZyj6BAPfJ8SiE+YhkFbOfLOTAcqOBmDCBlTApBgNVHREE\n"
    "IjAghh5zcGlmZmU6Ly9leGFtcGxlLm9yZy9zZXJ2ZXIvczEwHQYDVR0lBBYwFAYI\n"
    "KwYBBQUHAwEGCCsGAQUFBwMCMAkGA1UdEwQCMAAwHQYDVR0OBBYEFEhgRDTa5WCW\n"
    "5FUhfy4qs6Og0EocMB8GA1UdIwQYMBaAFC8guUHI9XI+PlFgvHrf64+h5GQsMAoG\n"
    "CCqGSM49BAMCA0gAMEUCIFn0eTBChlwYkBh+wTg9/1h5gOoXAymFKzfegdhbGmYq\n"
    "AiEAzFyvz57HmjMnR4HjVjrDUiPBHCaAsTvNOzv/Nzr0bIU=\n"
    "-----END CERTIFICATE-----\n";

}  // namespace lodestar::security
