package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// signer signs as cosign does with a key pair: ECDSA P-256 over SHA-256, in ASN.1.
type signer struct{ key *ecdsa.PrivateKey }

// loadSigner reads a private key: cosign's own form, or PEM as of openssl. Without a path there is none.
func loadSigner(path string, password []byte) (*signer, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			return nil, fmt.Errorf("%s holds no private key as PEM", path)
		}
		key, err := parseKey(block, password)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if key != nil {
			return &signer{key: key}, nil
		}
	}
}

// parseKey returns nothing for a block of something else, such as openssl's EC PARAMETERS.
func parseKey(block *pem.Block, password []byte) (*ecdsa.PrivateKey, error) {
	var parsed any
	var err error
	switch block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		var plain []byte
		if plain, err = encrypted.Decrypt(block.Bytes, password); err != nil {
			return nil, fmt.Errorf("decrypt with the password in COSIGN_PASSWORD: %w", err)
		}
		parsed, err = x509.ParsePKCS8PrivateKey(plain)
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("parse the key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the key is not one of ECDSA P-256, as cosign makes them")
	}
	return key, nil
}

// sign returns the signature as base64. It uses no source of randomness, so the signature is deterministic (RFC 6979).
func (s *signer) sign(message []byte) (string, error) {
	signature, err := s.key.Sign(nil, sha256Of(message), crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// publicKey returns the PEM-encoded key that verifies the signatures.
func (s *signer) publicKey() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

const attestationType = "application/vnd.in-toto+json"

// envelope is a signed attestation: https://github.com/secure-systems-lab/dsse/blob/master/envelope.md
type envelope struct {
	PayloadType string              `json:"payloadType"`
	Payload     string              `json:"payload"`
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

func (s *signer) attest(what statement) ([]byte, error) {
	payload, err := json.Marshal(what)
	if err != nil {
		return nil, fmt.Errorf("encode a statement: %w", err)
	}
	// https://github.com/secure-systems-lab/dsse/blob/master/protocol.md, PAE.
	var signed bytes.Buffer
	fmt.Fprintf(&signed, "DSSEv1 %d %s %d %s", len(attestationType), attestationType, len(payload), payload)
	signature, err := s.sign(signed.Bytes())
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{
		PayloadType: attestationType, Payload: base64.StdEncoding.EncodeToString(payload), Signatures: []envelopeSignature{{Sig: signature}},
	})
}

const (
	checksumsFile = "checksums.txt"
	signatureFile = checksumsFile + ".sig"
	publicKeyFile = "release.pub"
)

// writeChecksums lists the files of a directory as sha256sum does, and signs the list.
func writeChecksums(dir string, s *signer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the release: %w", err)
	}
	var list bytes.Buffer
	for _, entry := range entries {
		name := entry.Name()
		if name == checksumsFile || name == signatureFile || name == publicKeyFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read what is released: %w", err)
		}
		fmt.Fprintf(&list, "%s  %s\n", hex.EncodeToString(sha256Of(content)), name)
	}
	if err := os.WriteFile(filepath.Join(dir, checksumsFile), list.Bytes(), 0o644); err != nil || s == nil {
		return err
	}
	signature, err := s.sign(list.Bytes())
	if err != nil {
		return err
	}
	public, err := s.publicKey()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, signatureFile), []byte(signature+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, publicKeyFile), public, 0o644))
}
