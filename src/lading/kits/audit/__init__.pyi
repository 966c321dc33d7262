from lading.kits.audit.command import audit as audit
