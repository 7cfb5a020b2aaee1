//! iSCSI (RFC 7143).
